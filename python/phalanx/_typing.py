"""Names of `typing` for this package, without the import of `typing` at run time.

The import of `typing` would make `import phalanx` about a third longer. Type checkers see the names of
`typing`; at run time `Generic`, `TypeVar` and `overload` are stand-ins for them. Annotations are never
evaluated (``from __future__ import annotations``), so the other names exist for checkers only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generic, Literal, TypeAlias, overload

    import numpy as np

    # typing_extensions, because a bare `ObjectRef` is to mean `ObjectRef[Any]` before Python 3.13 too.
    from typing_extensions import TypeVar

    Op: TypeAlias = Literal["sum", "prod", "min", "max", "bit-and", "bit-or", "bit-xor", "mean"] | np.ufunc
    Order: TypeAlias = Literal["arrival", "fixed"]
    Root: TypeAlias = Literal["caller", "any"]
    Layout: TypeAlias = Literal["C", "F"]
    Writable: TypeAlias = Literal["cow"]
    OnLoss: TypeAlias = Literal["fail", "wait", "exclude"]
    OnLost: TypeAlias = Literal["raise", "wait"]
    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
else:
    import types

    class Generic:
        """The base of generic classes: ``ObjectRef[int]`` is valid at run time, too."""

        __slots__ = ()

        def __class_getitem__(cls, of):
            return cls if cls is Generic else types.GenericAlias(cls, of)

    def TypeVar(name, **_):
        return name

    def overload(function):
        return function


__all__ = ["Generic", "TypeVar", "overload"]
