"""`share`: values whose arrays Ray pickles as a few bytes, wherever it pickles them.

    process that shares               Ray                              process that unpickles
      share(value) ─ one put ─► Phalanx
      the same nest, of views
      ─ pickled: the object's id, ──────►│ an argument, a result,
        and Ray's counted ref            │ an object in its own store ──►│─ the object comes to this host once
                                         │ counts the ref in it          │  the same nest, of views
                                                                         └─ its arrays sent on: the same few bytes

The object lives as long as Ray counts its ref, which is in each pickled copy, and in each process that has one
of its arrays. Pickles that Ray does not make, as those in files, have the elements themselves. Tensors arrive
as plain ones, which know nothing of the object: the view keeps its pages. Any thread.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import sys

import numpy as np
import ray
from ray import cloudpickle

from phalanx import exceptions
from phalanx.ray import _connecting, _counting
from phalanx.ray._arrays import Array
from phalanx.ray._counting import Ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from phalanx._typing import TypeVar

    T = TypeVar("T")

# Smaller arrays stay in the pickle, and so does everything if the others together have fewer bytes: Ray sends
# up to 100 KiB with its own messages, which is faster than any store.
LEAST_ARRAY = 4 << 10
LEAST_VALUE = 64 << 10
# How long a process that unpickles a value waits for its object.
FETCH_S = 60.0


def share(value: T) -> T:
    """Put the arrays of a value in Phalanx, and return the value with them, which Ray then pickles small.

    What is returned can be used in place of the value, here and wherever Ray sends it: as an argument, by
    keyword, as a part of other values, in `ray.put`, as a result, in a request of Serve. It arrives as the same
    nest. The arrays are read-only views of memory that all processes of a host share, and come to each host
    once; sent on, they are not copied. Tensors arrive as plain tensors in private pages.

    Parameters
    ----------
    value
        A nest of dicts, lists and dataclasses, and of subclasses of these, of tuples and named tuples, as a
        state dict. NumPy arrays and torch's tensors of the CPU in it, of 4 KiB or more, become one object, if
        they have 64 KiB together. All others stay as they are: small ones, those in objects of other classes,
        subclasses of arrays, and in torch's inference mode all tensors. Tensors that are views of the same
        elements become separate ones.

    Returns
    -------
    The value itself if it has no such arrays; or else a nest of new containers, with `Array`s as arrays,
    and tensors that share no memory with those given. Those are for sending: one that an operation of torch
    changes is pickled with its elements from then on, but writes by its ``data`` or ``numpy()`` are not seen,
    and ``nn.Parameter`` takes its `clone`.

    Raises
    ------
    DisconnectedError
        This process is not in a Ray cluster, or Phalanx's node does not run.
    PhalanxError
        The errors of `phalanx.put`.

    Examples
    --------
    >>> weights = phalanx.ray.share(module.state_dict())
    >>> ray.get([runner.set_weights.remote(weights) for runner in runners])
    """
    leaves: dict[int, Any] = {}
    _replaced(value, lambda leaf: leaves.setdefault(id(leaf), leaf), {})
    if sum(_size(leaf) for leaf in leaves.values()) < LEAST_VALUE:
        return value
    client = _connecting.client()
    ref = _counting.counted(client.put([_plain(leaf) for leaf in leaves.values()]))
    bundle = _Bundle(ref, client.get(ref))
    places = {key: index for index, key in enumerate(leaves)}

    def part(leaf: Any) -> Any:
        place = places.get(id(leaf))  # None: made by a container of its own kind since the first look
        return leaf if place is None else _part_to_send(bundle, place)

    shared: T = _replaced(value, part, {})
    return shared


def _replaced(value: Any, replace: Callable[[Any], Any], memo: dict[int, tuple[Any, Any]]) -> Any:
    """Return a nest with other leaves, and new containers around those that differ.

    The memo has what each value becomes, by its id, and the value: an id is of one value as long as that lives.
    """
    if id(value) in memo:
        return memo[id(value)][1]
    memo[id(value)] = value, value  # a container inside of itself stays as it is
    made = value
    if _is_leaf(value):
        made = replace(value)
    elif isinstance(value, dict):
        made = _with(value, value.items(), dict.__setitem__, replace, memo)
    elif isinstance(value, list):
        made = _with(value, enumerate(value), list.__setitem__, replace, memo)
    elif isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_make")):
        items = [_replaced(item, replace, memo) for item in value]
        if any(new is not old for new, old in zip(items, value)):
            made = getattr(value, "_make", tuple)(items)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        made = _with(value, fields.items(), object.__setattr__, replace, memo)
    memo[id(value)] = value, made
    return made


def _with(
    container: Any, items: Any, assign: Any, replace: Callable[[Any], Any], memo: dict[int, tuple[Any, Any]]
) -> Any:
    """Return a container, or a copy of it in which items are replaced."""
    changed = []
    for key, item in items:
        new = _replaced(item, replace, memo)
        if new is not item:
            changed.append((key, new))
    if not changed:
        return container
    made = copy.copy(container)
    for key, new in changed:
        assign(made, key, new)
    return made


def _is_leaf(value: Any) -> bool:
    """Return whether a value is an array or a tensor that goes into Phalanx, and does not lie in an object yet."""
    kind = type(value)
    if kind is np.ndarray or (kind is Array and _place(value) is None):
        return value.nbytes >= LEAST_ARRAY and not value.dtype.hasobject
    torch = sys.modules.get("torch")
    if torch is None or kind is not torch.Tensor or torch.is_inference_mode_enabled():
        return False  # tensors made in inference mode do not count their changes
    plain = value.device.type == "cpu" and value.layout is torch.strided and not vars(value)
    return plain and _size(value) >= LEAST_ARRAY


def _size(leaf: Any) -> int:
    size: int = leaf.nbytes if isinstance(leaf, np.ndarray) else leaf.numel() * leaf.element_size()
    return size


def _plain(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


class _Bundle:
    """The object of one `share`: its ref, and its value, a list of plain views. Its parts refer to it."""

    __slots__ = ("ref", "values")

    def __init__(self, ref: Ref[Any], values: list[Any]) -> None:
        self.ref = ref
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray's reducer is called by hand: some pickles in messages of Ray know nothing of Ray's classes.
        reduce: Any = cloudpickle.CloudPickler.dispatch[ray.ObjectRef]
        rebuild, fields = reduce(self.ref._counted)
        return _received, (self.ref.id, self.ref._cluster, rebuild, fields)


def _received(object_id: bytes, cluster: str, rebuild: Callable[..., Any], fields: tuple[Any, ...]) -> _Bundle:
    """Fetch the object of a message of Ray. Pickles name this function."""
    ref: Ref[Any] = Ref(object_id, cluster, counted=rebuild(*fields))
    try:
        return _Bundle(ref, _connecting.client().get(ref, FETCH_S))
    except (exceptions.ObjectDeletedError, exceptions.ObjectLostError) as error:
        raise exceptions.ObjectLostError(
            "the arrays of a value of phalanx.ray.share are gone: the process that shared it has ended, or "
            f"Phalanx's node with them: {error}"
        ) from None
    except exceptions.GetTimeoutError as error:
        raise exceptions.GetTimeoutError(
            f"the arrays of a value of phalanx.ray.share have not come within {FETCH_S:.0f} s: the process that shared "
            f"it has ended, or Phalanx's directory does not answer: {error}"
        ) from None


def _part(bundle: _Bundle, index: int) -> Any:
    """Return an array or tensor of an object. Pickles name this function."""
    value = bundle.values[index]
    if not isinstance(value, np.ndarray):
        return value
    made: Any = value.view(Array)
    made._bundle, made._index = bundle, index
    return made


def _part_to_send(bundle: _Bundle, index: int) -> Any:
    """Return what the process that shares has: also a tensor is pickled as its place."""
    is_array = isinstance(bundle.values[index], np.ndarray)
    return _part(bundle, index) if is_array else _tensor_class().of(bundle, index)


def _place(array: Any) -> tuple[_Bundle, int] | None:
    """Return where an `Array` lies; None: in no shared object, or with another shape, type or part of one."""
    bundle = vars(array).get("_bundle")
    if bundle is None or _form(array) != _form(bundle.values[array._index]):
        return None
    return bundle, array._index


def _form(array: Any) -> Any:
    return array.ctypes.data, array.shape, array.strides, array.dtype


def _reduce(array: Any, protocol: Any) -> Any:
    """Pickle an `Array`: in a message of Ray one that lies in a shared object is its place in that."""
    if "_bundle" not in vars(array):
        return np.ndarray.__reduce_ex__(array, protocol)
    if _counting._in_message_of_ray() and (place := _place(array)) is not None:
        return _part, place
    return np.asarray(array).__reduce_ex__(protocol)


# Here, since arrays know nothing of Ray's counts.
Array.__reduce_ex__ = _reduce  # type: ignore[method-assign]


@functools.lru_cache(maxsize=None)
def _tensor_class() -> Any:
    torch: Any = importlib.import_module("torch")

    class SharedTensor(torch.Tensor):  # type: ignore[misc]
        """A tensor in private pages of a shared object. What is made of it, and what arrives, is a plain tensor."""

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def of(cls, bundle: _Bundle, index: int) -> Any:
            value = bundle.values[index]
            made = cls._make_subclass(cls, value.detach(), value.requires_grad)
            made._place = bundle, index
            made._as_shared = made._state()
            return made

        def _state(self) -> Any:
            return self.data_ptr(), self.shape, self.stride(), self.dtype, self.requires_grad, self._version

        def _plain(self) -> Any:
            return self.detach().requires_grad_(self.requires_grad)

        def __reduce_ex__(self, protocol: Any) -> Any:
            if _counting._in_message_of_ray() and self._state() == self._as_shared:
                return _part, self._place
            return self._plain().__reduce_ex__(protocol)

        def __deepcopy__(self, memo: Any) -> Any:
            return copy.deepcopy(self._plain(), memo)

    return SharedTensor
