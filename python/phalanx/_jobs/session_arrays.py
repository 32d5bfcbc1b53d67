"""Arrays of a session's calls: inputs are copied into the array of the result, in which the library folds.

Functions without state. `where` names an argument in errors.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx import _collectives, exceptions
from phalanx._jobs.buffers import Memory, memory_of, torch_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def own_op(op: Any) -> Callable[[Any, Any], Any] | None:
    """Return an op that is a function of the program; None for those that have a name."""
    import numpy as np

    return op if callable(op) and not isinstance(op, np.ufunc) else None


def reduced(array: Any, where: str) -> Memory:
    """Return the memory of an array that is folded in place."""
    memory = memory_of(array, where)
    if memory.dtype is None:
        raise exceptions.InvalidArgumentError(
            f"{where}: elements of dtype {memory.spoken} cannot be reduced; those of "
            f"{', '.join(_collectives.reduced_names())} can"
        )
    return memory


def copied(array: Any, out: Any, where: str) -> Any:
    """Return `out`, or else a new array, with the elements of an array."""
    import numpy as np

    torch = torch_of(array)
    if torch is None and (not isinstance(array, (np.ndarray, np.generic)) or isinstance(array, np.ma.MaskedArray)):
        memory_of(array, where)  # raises
    if out is not None:
        check_like(array, out, where)
        if out is not array:
            _copy(out, array)
        return out
    if torch is not None:
        if array.device.type != "cpu":
            memory_of(array, where)  # raises
        return array.detach().clone(memory_format=torch.contiguous_format)
    return np.array(array, order="C", copy=True)


def returned(array: Any, result: Any) -> Any:
    """Return a result in the kind of its input: a scalar for a scalar."""
    import numpy as np

    return result[()] if isinstance(array, np.generic) else result


def empty(out: Any, shape: int | tuple[int, ...] | None, dtype: Any, where: str) -> Any:
    """Return the array that an input is to be prepared in: `out`, or else a new one."""
    import numpy as np

    if out is None:
        if shape is None or dtype is None:
            raise exceptions.InvalidArgumentError(f"{where}: prepare= needs shape= and dtype=, or out=")
        return np.empty(shape, dtype)
    memory_of(out, f"{where}: out")
    if shape is not None and tuple(out.shape) != tuple(np.empty(shape, bool).shape):
        raise exceptions.InvalidArgumentError(f"{where}: out has the shape {tuple(out.shape)}, not {shape}")
    if dtype is not None and torch_of(out) is None and out.dtype != np.dtype(dtype):
        raise exceptions.InvalidArgumentError(f"{where}: out has the dtype {out.dtype}, not {np.dtype(dtype)}")
    return out


def fill(result: Any, prepare: Callable[[], Any], where: str) -> None:
    """Copy what `prepare` returns into the array of a result."""
    import numpy as np

    array = prepare()
    if array is result:
        return
    if torch_of(array) is None:
        if array is None:
            raise TypeError(f"{where} returned None: it returns an array")
        array = np.asarray(array)
    check_like(array, result, where)
    _copy(result, array)


def check_like(array: Any, out: Any, where: str) -> None:
    """Raise InvalidArgumentError unless an array has the shape and dtype of the array of its result."""
    memory_of(out, f"{where}: out")
    if tuple(array.shape) != tuple(out.shape) or array.dtype != out.dtype:
        raise exceptions.InvalidArgumentError(
            f"{where}: {array.dtype} of shape {tuple(array.shape)}, and the result is {out.dtype} of shape "
            f"{tuple(out.shape)}"
        )


def _copy(out: Any, array: Any) -> None:
    import numpy as np

    if torch_of(out) is None:
        np.copyto(out, array)
    else:
        out.detach().copy_(array.detach())
