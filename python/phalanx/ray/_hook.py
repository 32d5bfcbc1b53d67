"""`init` and `register`: how Phalanx gets into a Ray job's processes.

    driver                       Ray                              each worker of the job
      │─ ray.init(runtime_env) ──►│── worker_process_setup_hook ──►│─ register(): transports, backend, node
      │─ register(), client()     │                                │─ the user's own hook, if there is one

Any thread.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import types
from collections.abc import Callable, Mapping

import ray
from ray._common.utils import load_class
from ray._private import ray_constants
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR

from phalanx import _arguments, exceptions
from phalanx.ray import _connecting, _counting, _daemons, _groups, _here, _transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    Hook = Union[str, Callable[[], Any]]

HOOK = "phalanx.ray.register"
_KEY = "worker_process_setup_hook"
_OF_CLIENT = {"env_vars": {ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR: HOOK}}
_logger = logging.getLogger("phalanx.ray")
_MAX_CAPACITY = (1 << 63) - 1


def register() -> None:
    """Register Phalanx with Ray in this process, and start the node of this host if the directory runs.

    Idempotent. Never raises, because a hook that raises ends its worker: what fails is logged, and the first
    use of Phalanx raises it.
    """
    try_to_register_names()
    try:
        _connecting.start_node()
    except Exception:
        _logger.exception("Phalanx's node of this host does not run; the first use tries again")


def try_to_register_names() -> None:
    """Register as `register_names` does; what fails is logged, because an import that raises ends a worker."""
    try:
        register_names()
    except Exception:
        _logger.exception("Phalanx is not registered with Ray in this process")


def register_names() -> None:
    """Register the transports and the backend with Ray in this process, once."""
    _transport.register()
    _groups.register()


def init(
    address: str | None = None,
    *,
    capacity: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Call `ray.init` with Phalanx's hook in the job's runtime environment, and connect this driver.

    If Ray is initialised already and its job has no such hook, a warning says what to put into the job's
    runtime environment. Tasks and actors then register when they use `phalanx.ray`; an actor that only
    receives tensors calls ``phalanx.ray.register()`` in its ``__init__``.

    Parameters
    ----------
    address, options
        As in `ray.init`. With "ray://..." this process gets no node: use Phalanx in tasks and actors.
    capacity
        Bytes of memory of each host's node. None: 30 % of the memory of the host, or of its control group,
        beside the 30 % of Ray's own object store. The node prints it.
    runtime_env
        As in `ray.init`. A ``worker_process_setup_hook`` of yours runs after Phalanx's.

    Returns
    -------
    The context that `ray.init` returns; None if Ray was initialised already.

    Raises
    ------
    DisconnectedError
        Phalanx's daemons do not start; the message has the cause. Ray stays initialised.
    InvalidArgumentError
        `runtime_env` has a hook of yours, and the address is "ray://...": Ray would not run it.
    """
    context = None
    if ray.is_initialized():
        _warn_of_missing_hook(ray.get_runtime_context().runtime_env, capacity)
    else:
        submitted = _submitted_with()
        if _daemons.CAPACITY in submitted.get("env_vars", {}):
            _warn_of_unused(capacity)
            capacity = None
        environment = merged(runtime_env, capacity, submitted)
        if (address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
            environment = of_client(environment)
        _daemons.ask_for(capacity)
        context = ray.init(address, runtime_env=environment, **options)
    if not _is_client():
        register_names()
        client = _connecting.client()
        if not os.environ.get("PHALANX_ADDRESS"):
            _connecting.share_secret()
            print(f"phalanx: {_daemons.described(_here.here())}; {client.address}", file=sys.stderr)
    return context


def _is_client() -> bool:
    """Return whether this process is connected by ray://."""
    clients: Any = ray.util.client.ray  # without types
    connected: bool = clients.is_connected()
    return connected


def _submitted_with() -> Mapping[str, Any]:
    """Return the runtime environment that `ray job submit` has given the job of this driver."""
    found: Mapping[str, Any] | None = json.loads(os.environ.get(RAY_JOB_CONFIG_JSON_ENV_VAR, "{}")).get("runtime_env")
    return found or {}


def merged(
    runtime_env: Mapping[str, Any] | None,
    capacity: int | None = None,
    submitted: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Return a job's runtime environment with Phalanx's hook, and then the one that it had.

    Ray adds it to what the job was submitted with, and refuses a key that is in both, also with equal values. So a job
    that was submitted with another hook keeps that one alone, and a warning says so.
    """
    made = dict(runtime_env or {})
    theirs = made.pop(_KEY, None)
    if theirs not in (None, HOOK):
        made[_KEY] = _followed_by(theirs)
    elif _hook_of(submitted) is None:
        made[_KEY] = HOOK
    elif not has_hook(submitted):
        _warn_of_missing_hook(submitted, None)
    if capacity is not None:
        room = _arguments.whole(capacity, "capacity", least=1 << 20, most=_MAX_CAPACITY)
        made["env_vars"] = {**made.get("env_vars", {}), _daemons.CAPACITY: str(room)}
    return made


def of_client(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the runtime environment with Phalanx's hook of a job of Ray's client, which ignores the key of hooks.

    It passes variables on, and so the one in which Ray has a job's hook for its workers.
    """
    made = dict(runtime_env)
    if made.pop(_KEY, HOOK) != HOOK:
        raise exceptions.InvalidArgumentError(
            f"{_KEY} in runtime_env: Ray's client (ray://) runs no hooks. Call what it does in tasks and in the __init__ of actors"
        )
    made["env_vars"] = {**made.get("env_vars", {}), **_OF_CLIENT["env_vars"]}
    return made


def _followed_by(theirs: Hook) -> Callable[[], None]:
    """Return a hook that registers Phalanx, and then does what the user's hook does."""

    def phalanx_and_then_the_users() -> None:
        register()
        run(theirs)

    return phalanx_and_then_the_users


def run(hook: Hook) -> None:
    """Run a hook as Ray does; its errors are the caller's."""
    load: Any = load_class  # without types
    (load(hook) if isinstance(hook, str) else hook)()


def _hook_of(runtime_env: Mapping[str, Any]) -> Any:
    """Return the hook of a job's runtime environment, or its name; None if it has none."""
    named = runtime_env.get("env_vars", {}).get(ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR)
    return runtime_env.get(_KEY) or named


def has_hook(runtime_env: Mapping[str, Any]) -> bool:
    """Return whether the workers of a job with this runtime environment run Phalanx's hook."""
    return _hook_of(runtime_env) in (HOOK, _followed_by(HOOK).__name__)


def _warn_of_missing_hook(runtime_env: Mapping[str, Any], capacity: int | None) -> None:
    hook: dict[str, Any] = {_KEY: HOOK}
    if _is_client():  # which ignores the key
        hook, runtime_env = _OF_CLIENT, {"env_vars": runtime_env.get("env_vars", {})}
    if not has_hook(runtime_env):
        _logger.warning(
            "Ray was initialised, or this job submitted, without Phalanx's hook, so its workers do not run it. Put "
            "%r into the job's runtime_env (ray.init, `ray job submit --runtime-env-json`, Serve's or Tune's "
            "ray.init), or call phalanx.ray.register() first in the __init__ of actors that receive tensors",
            hook,
        )
    _warn_of_unused(capacity)


def _warn_of_unused(capacity: int | None) -> None:
    if capacity is not None:
        _logger.warning(
            "capacity=%d is not used: the job has its runtime_env already. Set %s in the env_vars there",
            capacity,
            _daemons.CAPACITY,
        )


def shutdown() -> None:
    """Close this process's connection, and call `ray.shutdown`. Daemons end with their raylets."""
    _counting.release_all()
    _connecting.disconnect()
    ray.shutdown()
