"""`Array`, the arrays that Ray moves by Phalanx.

A class of its own, because Ray serialises every value of a transport's class in another way from its first use
on: with plain arrays as that class, all arrays of the process would lose Ray's zero-copy reads.
"""

from __future__ import annotations

import numpy as np

from phalanx.ray import _connecting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from phalanx import ObjectRef


class Array(np.ndarray):
    """A NumPy array that Ray's tensor transport "phalanx" moves; made by `array`, or ``x.view(Array)``.

    Results of arithmetic, slices and copies are `Array`s, too. Their bytes are put when Ray sends them; those
    of an `Array` that lies in Phalanx already, as one that was received does, are not copied again.
    """

    # The object whose bytes, all of them, these are.
    _object: ObjectRef[Any] | None = None

    def __array_finalize__(self, source: Any) -> None:
        self._object = None  # another shape, part or value than the source's

    def is_contiguous(self) -> bool:
        """Return whether the array is contiguous in C order; Ray asks this of `set_target_for_ref`'s buffers."""
        return bool(self.flags.c_contiguous)


def array(value: Any) -> Array:
    """Put an array in Phalanx, and return it as a read-only `Array`, a view of the shared memory."""
    client = _connecting.client()
    ref = client.put(np.asarray(value))
    return received(ref, client.get(ref))


def plain(value: Any) -> Any:
    """Return a value with plain views in place of its `Array`s, for Phalanx, which keeps arrays as they are."""
    return replaced(value, Array, np.asarray)


def replaced(value: Any, kind: type, replace: Callable[[Any], Any]) -> Any:
    """Return a nest of dicts, lists and tuples with other values in place of those of exactly this type."""
    if type(value) is kind:
        return replace(value)
    if type(value) is dict:
        return {key: replaced(item, kind, replace) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replaced(item, kind, replace) for item in value)
    return value


def received(ref: ObjectRef[Any], value: Any) -> Array:
    """Return an object's value as an `Array` that remembers its object."""
    made: Array = np.asarray(value).view(Array)
    made._object = ref
    return made
