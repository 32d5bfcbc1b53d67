"""`Array`, the arrays that Ray moves by Phalanx, and the tensors of torch that travel as such.

A class of its own, because Ray serialises every value of a transport's class in another way from its first use
on: with plain arrays as that class, all arrays of the process would lose Ray's zero-copy reads. The same holds for
tensors of torch. So a tensor is sent as a `Tensor`, which Ray pickles: its pickle names a function and an `Array`
of the tensor's bytes, which the transport replaces, and the function returns a tensor for the `Array`.

    producer: torch tensor ── put ──► object;  Tensor(Array of its bytes)
    Ray:      pickle of the Tensor, with the Array moved by the transport
    consumer: Array of the object's bytes ── tensor_of, at each get ──► a torch tensor with memory of its own

Any thread. torch is imported by no function of this module.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections import OrderedDict

import numpy as np

from phalanx import exceptions
from phalanx._values import _wire, tensors
from phalanx.ray import _connecting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from phalanx import ObjectRef


# How long the value of an object on this host may take.
_AGAIN_S = 5.0


class Array(np.ndarray):
    """A NumPy array that Ray's tensor transport "phalanx" moves; made by `array`, or ``x.view(Array)``.

    Results of arithmetic, slices and copies are `Array`s, too. Their bytes are put when Ray sends them; those
    of an `Array` that lies in Phalanx already, as one that was received does, are not copied again.
    """

    # The object whose bytes, all of them, these are; and its value, if that is a tensor, which no user gets.
    _object: ObjectRef[Any] | None = None
    _tensor: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self._object = self._tensor = None  # another shape, part or value than the source's

    def is_contiguous(self) -> bool:
        """Return whether the array is contiguous in C order; Ray asks this of `set_target_for_ref`'s buffers."""
        return bool(self.flags.c_contiguous)


class Tensor:
    """A tensor of torch on its way: what receives it gets a torch.Tensor. Made by `array`."""

    __slots__ = ("_bytes", "_layout")

    def __init__(self, of_object: Array) -> None:
        self._bytes = of_object
        # For a process where the bytes come without their object.
        self._layout = tuple(tensors.layout_of(of_object._tensor))  # type: ignore[arg-type]  # it has been stored so

    def value(self) -> Any:
        """Return a torch.Tensor whose memory nothing else writes."""
        return tensor_of(self._bytes, self._layout)

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_of, (self._bytes, self._layout)


def tensor_of(array: Array, layout: tuple[Any, ...]) -> Any:
    """Return a tensor with an array's bytes, in memory that nothing else writes. Pickles of `Tensor`s name this.

    Each `ray.get` of a ref calls it with the same array. Of an object on this host its pages are private copies of
    those that are written alone; if that has gone, with its node, or the pickle was not moved by the transport, the
    memory is a copy of the array's.
    """
    if getattr(array, "_tensor", None) is not None:
        with contextlib.suppress(exceptions.PhalanxError):
            return _connecting.client().get(array._object, timeout=_AGAIN_S)  # type: ignore[arg-type]
    return tensors.view(_wire.Layout(*layout), memoryview(bytearray(np.ascontiguousarray(array))))


def array(value: Any) -> Any:
    """Put an array in Phalanx, and return it as a read-only `Array`, a view of the shared memory.

    A tensor of torch is put, too, and comes back as a `Tensor`: what receives that gets a torch.Tensor.

    Raises
    ------
    TypeError
        The tensor is none that Phalanx moves: it is empty, sparse, not on the CPU, or of a subclass, as Parameter is.
    """
    client = _connecting.client()
    if is_movable(value):
        ref = client.put(value)
        return Tensor(received(ref, client.get(ref)))
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        raise TypeError(
            f"a {type(value).__name__} of {tuple(value.shape)} on {value.device}: Phalanx moves dense tensors of the "
            "CPU that have elements, no subclasses. Give .detach().cpu(), or let Ray send it as it is"
        )
    ref = client.put(np.asarray(value))
    return received(ref, client.get(ref))


def is_movable(value: Any) -> bool:
    """Return whether a value is a tensor that Phalanx stores without pickle: dense, on the CPU, no subclass."""
    if not tensors.is_tensor_type(type(value)) or value.device.type != "cpu":
        return False
    return value.numel() > 0 and tensors.layout_of(value) is not None


def plain(value: Any) -> Any:
    """Return a value with plain views in place of its `Array`s, and tensors in place of `Tensor`s."""
    return replaced(value, {Array: np.asarray, Tensor: Tensor.value})


def sent(value: Any) -> Any:
    """Return a value with `Array`s and `Tensor`s, which lie in Phalanx, in place of its arrays and tensors."""
    torch: Any = sys.modules.get("torch")
    wrap: dict[type, Callable[[Any], Any]] = {
        # Pickled values have no elements that a view could show.
        np.ndarray: lambda given: given if given.dtype.hasobject else array(given)
    }
    if torch is not None:
        wrap[torch.Tensor] = lambda given: array(given) if is_movable(given) else given
    return replaced(value, wrap)


def replaced(value: Any, replace: dict[type, Callable[[Any], Any]]) -> Any:
    """Return a nest of dicts, lists and tuples with other values in place of those of exactly these types."""
    kind = type(value)
    if kind in replace:
        return replace[kind](value)
    if kind is dict:
        return {key: replaced(item, replace) for key, item in value.items()}
    if kind is OrderedDict:
        made = copy.copy(value)  # with the attributes that torch's state dicts have
        made.update((key, replaced(item, replace)) for key, item in value.items())
        return made
    if kind in (list, tuple):
        return kind(replaced(item, replace) for item in value)
    return value


def value_of(given: Array) -> Any:
    """Return the value of the object that an `Array` stands for."""
    tensor = getattr(given, "_tensor", None)  # a buffer of `set_target_for_ref` can be a plain array
    return np.asarray(given) if tensor is None else tensor


def received(ref: ObjectRef[Any], value: Any) -> Array:
    """Return an object's value as an `Array` that remembers its object; of a tensor, an `Array` of its bytes."""
    made: Array
    layout = tensors.layout_of(value) if tensors.is_tensor_type(type(value)) else None
    if layout is None:
        made = np.asarray(value).view(Array)
    else:
        made = tensors.flat_array(layout, value).view(Array)
        made._tensor = value
    made._object = ref
    return made
