"""Tasks whose result goes into Phalanx under a ref that exists from the start, and reductions over them.

    caller                         Ray                    worker
      │─ ref, held ────────────────────────────────────────►│
      │─ remote(ref, ...) ─────────►│─ schedules, retries ─►│─ the function; puts its result under the ref
      │◄─ the ref, in transit ──────│◄──────────────────────│
      │─ claims it                  │
      │◄─ failed, after all retries │
      │─ set_exception(ref)         │
      reduce(refs) folds the results where they are

The caller's hold can reach the directory later than the worker's put and the end of the worker's hold. So the
worker's node holds the object as a reference in transit, until the caller has claimed it or for a minute.
Any thread of a driver or a worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import logging
import pickle
import threading
from collections.abc import Callable, Iterable

import ray

from phalanx import exceptions
from phalanx._async_client import AsyncClient
from phalanx._ref import ObjectRef
from phalanx.ray import _arrays, _connecting, _counting, _invoking
from phalanx.ray._counting import Ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_logger = logging.getLogger("phalanx.ray")
# How long a worker waits for the directory after its put.
_KNOWN_S = 5.0


class Task:
    """A function that Ray runs in a worker, made by `task`. `remote` returns a `Ref` at once."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        if options.get("num_returns", 1) != 1:
            raise exceptions.InvalidArgumentError(
                f"num_returns={options['num_returns']}: a phalanx.ray.task has one result; return a tuple or a dict"
            )
        self._function = function
        self._options = options
        # What `options` has changed. Ray takes some options at the definition only, and has other defaults there.
        self._changed: dict[str, Any] = {} if "name" in options else {"name": function.__qualname__}
        functools.update_wrapper(self, function)
        runner = _runner_of(function)
        self._remote = ray.remote(**options)(runner) if options else ray.remote(runner)

    def options(self, **options: Any) -> Task:
        """Return the task with other options of Ray (`num_cpus`, `resources`, `max_retries`, ...)."""
        made = Task.__new__(Task)
        made.__dict__.update(self.__dict__)
        made._options = {**self._options, **options}
        made._changed = {**self._changed, **options}
        if made._options.get("num_returns", 1) != 1:
            Task(self._function, made._options)  # raises
        return made

    def remote(self, *args: Any, **kwargs: Any) -> Ref[Any]:
        """Submit the task, and return the ref of its result.

        A `Ref` among the arguments that is another task's result makes Ray start this task after that one.
        `ref.get` raises what the task raised, or Ray's error if its worker died and the retries are used up.
        """
        _invoking.refuse_for_task(*args, *kwargs.values())
        return _submitted(self._remote.options(**self._changed).remote, (), args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self._function.__qualname__} is a task: call {self._function.__qualname__}.remote()")


def task(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a task of Ray whose result goes into Phalanx; used as `ray.remote` is.

    The result stays on the worker's host, and travels only to the hosts that get it.

    Examples
    --------
    >>> @phalanx.ray.task(num_cpus=1)
    ... def gradient(weights, shard):
    ...     return compute(weights.get(), shard)
    >>> mean = phalanx.ray.reduce([gradient.remote(weights, i) for i in range(8)], "mean", num_objects=6)
    """
    if function is None:
        return lambda function: Task(function, options)
    return Task(function, options)


def call(actor: Any, method: str, *args: Any, **kwargs: Any) -> Ref[Any]:
    """Call a method of an actor, and return the ref of its result, which goes into Phalanx, at once.

    For any actor, and for methods that are not marked. `Ref`s among the arguments are as in `Task.remote`.

    Parameters
    ----------
    actor, method
        The actor's handle, and the name of a method, which is no coroutine and no generator.

    Returns
    -------
    Ref
        Its `get` raises what the method raised, or Ray's error if the actor has died.

    Raises
    ------
    AttributeError
        The actor has no such method.

    Examples
    --------
    >>> gradients = [phalanx.ray.call(worker, "gradient", weights) for worker in workers]
    >>> mean = phalanx.ray.reduce(gradients, "mean", num_objects=3, dtype=np.float32)
    """
    getattr(actor, method)
    _invoking.refuse_keywords(actor, args, kwargs)
    return _submitted(actor.__ray_call__.remote, (run_method, method), args, kwargs)


def run_method(
    actor: Any, method: str, object_id: bytes, cluster: str, waited_for: int, *args: Any, **kwargs: Any
) -> bytes:
    """Run a method in its actor, and put its result under the given id."""
    value = getattr(actor, method)(*args[waited_for:], **kwargs)
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
        raise TypeError(f"phalanx.ray.call: {method} of {type(actor).__name__} is a coroutine or a generator")
    return put_result(object_id, cluster, value)


def _submitted(
    submit: Callable[..., Any], first: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Ref[Any]:
    """Submit what puts its result, and return the ref of that."""
    client = _connecting.client()
    ref = client.ref()
    after = [arg._task for arg in (*args, *kwargs.values()) if isinstance(arg, Ref) and arg._task]
    task = submit(*first, ref.id, client.directory, len(after), *after, *args, **kwargs)
    # The task's own result is small and comes at once; Ray counts it instead of an object more.
    result = _counting.counted(ref, task)
    result._task = task
    _watch(result)
    return result


def _runner_of(function: Callable[..., Any]) -> Callable[..., bytes]:
    """Return what runs in the worker: the function, whose result is put under the given id."""

    @functools.wraps(function)
    def runner(object_id: bytes, cluster: str, waited_for: int, *args: Any, **kwargs: Any) -> bytes:
        return put_result(object_id, cluster, function(*args[waited_for:], **kwargs))

    # Its parameters are others than those of the function, which Ray would check the arguments with.
    del runner.__wrapped__
    return runner


def put_result(object_id: bytes, cluster: str, value: Any) -> bytes:
    """Put a task's result, and return its ref in transit, for Ray to send to the caller.

    A run that Ray repeats keeps the object that an earlier one has put.
    """
    client = _connecting.client()
    ref: ObjectRef[Any] = ObjectRef(object_id, cluster, client=client)
    client.put(_arrays.plain(value), ref)
    sent = pickle.dumps(ref)
    # The answer follows the transit. A claim that the node hears of before the transit would have no effect.
    with contextlib.suppress(exceptions.PhalanxError):
        client.contains(ref, _KNOWN_S)
    return sent


def _watch(result: Ref[Any]) -> None:
    """Claim the object of a task when the task ends; mark it as failed if the task fails for good."""
    # A ref of its own, which Ray does not count: the watcher must not keep the object.
    target = ObjectRef(result.id, result._cluster, client=result._client)
    task = result._task
    _counting.unended.add(task)

    def ended(future: concurrent.futures.Future[Any]) -> None:
        _counting.unended.discard(task)
        error = future.exception()
        if error is None:
            pickle.loads(future.result())  # claims it; the caller's own hold is older
        else:
            _background().call_soon_threadsafe(_spawn, _fail(target, _cause_of(error)))

    task.future().add_done_callback(ended)


def _cause_of(error: BaseException) -> BaseException:
    """Return what a task raised; for a worker's death Ray's own error."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(error, ray.exceptions.RayTaskError) and cause is not None else error


async def _fail(ref: ObjectRef[Any], error: BaseException) -> None:
    client = AsyncClient.of(_connecting.client())
    try:
        await client.set_exception(ref, error)
    except exceptions.ObjectExistsError:
        pass  # the worker died after its put
    except exceptions.PhalanxError:
        _logger.exception("the failure of a task is not known to those that wait for %r", ref)


def reduce(
    refs: Iterable[ObjectRef[Any]], op: Any = "sum", *, num_objects: int | None = None, **options: Any
) -> Ref[Any]:
    """Reduce objects, which need not exist yet, and return the ref of the result at once.

    Parameters
    ----------
    refs, op, num_objects, options
        As in `phalanx.reduce` (`dtype`, `order`, `root`, `timeout`). With `dtype` and ``root="any"`` no byte of
        the sources comes to this process's host.

    Returns
    -------
    Ref
        Its `get` raises the errors of `phalanx.reduce`: what a source's task has raised, if too few are left.

    Raises
    ------
    TypeError, InvalidArgumentError
        Something else than refs, or no refs, are given, or a `ref`.
    """
    sources = [ref if isinstance(ref, ObjectRef) else _not_a_ref(ref) for ref in refs]
    if "ref" in options or not sources:
        raise exceptions.InvalidArgumentError("reduce takes at least one ref, and makes the ref of the result")
    client = _connecting.client()
    result = _counting.counted(client.ref())
    target = ObjectRef(result.id, result._cluster, client=client)
    _background().call_soon_threadsafe(
        _spawn, _reduce(target, sources, op, {"num_objects": num_objects, **options})
    )
    return result


def _not_a_ref(value: Any) -> ObjectRef[Any]:
    remedy = ""
    if isinstance(value, ray.ObjectRef):
        remedy = ": Ray's own refs are results of Ray's own tasks; make the tasks with phalanx.ray.task"
    raise TypeError(f"phalanx.ray.reduce takes refs of Phalanx, not {type(value).__name__}{remedy}")


async def _reduce(
    target: ObjectRef[Any], sources: list[ObjectRef[Any]], op: Any, options: dict[str, Any]
) -> None:
    try:
        await AsyncClient.of(_connecting.client()).reduce(sources, op, ref=target, **options)
    except Exception as error:
        await _fail(target, error)


# The event loop of the reductions and failures under way, in a thread of its own, made at the first use.
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
# The loop alone refers to its tasks weakly.
_running: set[asyncio.Task[None]] = set()


def _background() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="phalanx-ray", daemon=True).start()
        return _loop


def _spawn(steps: Any) -> None:
    assert _loop is not None
    made = _loop.create_task(steps)
    _running.add(made)
    made.add_done_callback(_running.discard)
