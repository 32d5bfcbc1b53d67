"""The C functions of the client, and the helpers that all calls share.

``lib`` and ``ffi`` are cffi's, from the declarations of phalanx/c.h and c_ps.h; the build of the
package generates ``_abi`` from these headers. cffi releases the interpreter's lock around every
call. This module alone maps the library's status codes to exceptions. Has no state; any thread can
use it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from functools import partial

from phalanx import exceptions
from phalanx._abi import ffi
from phalanx._arguments import seconds_of, utf8
from phalanx._release import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")
EXECUTABLE = os.path.join(FOLDER, "phalanx")
# From this size on, an object has a file of its own in the node, which can be mapped alone.
OWN_FILE_BYTES = 1 << 20
ID_BYTES = 20
FOREVER = -1
MAX_COPIES = 64  # kMaxObjectCopies in client.h
PENDING = -1

lib: Any = ffi.dlopen(os.path.join(FOLDER, "libphalanx.so"))

# The library's status codes. Other modules use those without an underscore.
_OK, _CANCELLED, UNKNOWN, _INVALID, DEADLINE, _NOT_FOUND, _EXISTS, _DENIED = range(8)
_EXHAUSTED, PRECONDITION, _ABORTED, _RANGE, _UNIMPLEMENTED, _INTERNAL, _UNAVAILABLE = range(8, 15)
_DATA_LOSS, _UNAUTHENTICATED = 15, 16

_errors: dict[int, type[exceptions.PhalanxError]] = {
    _CANCELLED: exceptions.CallCancelledError,
    _INVALID: exceptions.InvalidArgumentError,
    DEADLINE: exceptions.GetTimeoutError,
    _NOT_FOUND: exceptions.ObjectDeletedError,
    _EXISTS: exceptions.ObjectExistsError,
    _DENIED: exceptions.AccessError,
    _EXHAUSTED: exceptions.StoreFullError,
    PRECONDITION: exceptions.ClosedError,
    _ABORTED: exceptions.StreamVoidError,
    _RANGE: exceptions.InvalidArgumentError,
    _UNAVAILABLE: exceptions.DisconnectedError,
    _DATA_LOSS: exceptions.ObjectLostError,
    _UNAUTHENTICATED: exceptions.AccessError,
}

_ID = re.compile(r"\b[0-9a-f]{40}\b")
# An id without its name in front of it, as the library writes ids whose names it was not sent.
_BARE_ID = re.compile(r'(?<!" \()\b[0-9a-f]{40}\b')

# The namespaces and names of ids that this process has derived or received, for the texts of errors.
_names: dict[bytes, tuple[str, str]] = {}
_MAX_NAMES = 1 << 16


def error_of(code: int, message: str, node: str | None = None) -> exceptions.PhalanxError:
    """Return the exception for a status of the library."""
    kind = _errors.get(code, exceptions.PhalanxError)
    # The status code is also that of a closed client; only the text distinguishes them.
    if code == PRECONDITION and "speaks version" in message:
        kind = exceptions.VersionError
        message = f"{message}; this is phalanx {__version__} on host {os.uname().nodename}"
    message = _BARE_ID.sub(lambda found: shown(bytes.fromhex(found.group())), message)
    named = _ID.search(message)
    return kind(message, named and named.group(), node)


def last_error(node: str | None = None) -> exceptions.PhalanxError:
    """Return the exception for this thread's last error."""
    return error_of(lib.phx_error_code(), text(lib.phx_error()), node)


def text(pointer: Any) -> str:
    return ffi.string(pointer).decode("utf-8", "replace")


def checked(pointer: Any, node: str | None = None) -> Any:
    """Return a pointer that is not NULL; raise the library's last error if it is NULL."""
    if pointer == ffi.NULL:
        raise last_error(node)
    return pointer


def nanos(seconds: float | None) -> int:
    """Return seconds (`_arguments.seconds_of`) as the library's nanoseconds; None means no limit."""
    return FOREVER if seconds is None else int(seconds * 1e9)


def ttl_nanos(ttl: float | timedelta | None) -> int:
    """Return a time to live as the library's nanoseconds; None means that there is no limit."""
    if ttl is None:
        return FOREVER
    given: Any = ttl
    seconds = seconds_of(given.total_seconds() if hasattr(given, "total_seconds") else given, "ttl")
    if seconds is None:
        return FOREVER
    if seconds == 0:
        raise exceptions.InvalidArgumentError("ttl=0: a time to live is positive, or None for no limit")
    return max(1, nanos(seconds))


class Stay:
    """How long an object stays, and where; see `Client.put`. Made by `stay`."""

    __slots__ = ("copies", "scope", "ttl", "wait_for_copies")

    def __init__(
        self,
        ttl: int = FOREVER,
        copies: int = 0,
        wait_for_copies: bool = False,
        scope: tuple[bytes, int] | None = None,
    ) -> None:
        self.ttl, self.copies, self.wait_for_copies, self.scope = ttl, copies, wait_for_copies, scope


DEFAULT_STAY = Stay()


def stay(
    ttl: float | timedelta | None,
    copies: int | None,
    wait_for_copies: bool,
    scope: str | tuple[str, int] | None,
) -> Stay:
    """Return the arguments of `Client.put` about the stay of an object, checked."""
    if copies is None and wait_for_copies:
        raise exceptions.InvalidArgumentError("wait_for_copies=True: give the number of copies, too")
    number = 0 if copies is None else copies_of(copies)
    return Stay(ttl_nanos(ttl), number, wait_for_copies, None if scope is None else scope_of(scope))


def scope_of(scope: str | tuple[str, int]) -> tuple[bytes, int]:
    """Return the name and the number of a scope, checked; the library checks the name further."""
    name, number = (scope, 0) if isinstance(scope, str) else scope
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"scope={scope!r}: a name, or a name and a whole number")
    if not name or "\0" in name or not 0 <= number < 1 << 64:
        raise exceptions.InvalidArgumentError(f"scope={scope!r}: a name, and a number from 0 to 2**64-1")
    return utf8(name, "scope"), number


def copies_of(copies: int) -> int:
    """Return a number of copies, checked."""
    if not isinstance(copies, int) or isinstance(copies, bool):
        raise TypeError(f"copies={copies!r}: a whole number")
    if not 1 <= copies <= MAX_COPIES:
        raise exceptions.InvalidArgumentError(f"copies={copies}: 1 to {MAX_COPIES}")
    return copies


def put_options(
    metadata: bytes,
    seconds: float | None,
    owned: bool,
    refs: Sequence[bytes] = (),
    adopted: bool = False,
    stays: Stay = DEFAULT_STAY,
) -> tuple[Any, Any]:
    """Return the library's options of a Put, and the memory they point to; keep it while they are used.

    `adopted`: the Put waits until the directory has adopted the object, or knows another one.
    """
    options = ffi.new("phx_put_options*")
    options.metadata = kept = ffi.from_buffer(metadata)
    options.metadata_size = len(metadata)
    options.owned = owned
    options.wait_for_adoption = adopted
    options.timeout = nanos(seconds)
    options.ttl = stays.ttl
    options.copies = stays.copies
    options.wait_for_copies = stays.wait_for_copies
    name = None
    if stays.scope is not None:
        options.scope = name = ffi.new("char[]", stays.scope[0])
        options.scope_number = stays.scope[1]
    if not refs:
        return options, (kept, name)
    options.refers_to = ids = ffi.from_buffer(b"".join(refs))
    options.refers_to_count = len(refs)
    return options, (kept, name, ids)


def view_bytes(view: Any) -> memoryview:
    """Return the read-only bytes of a phx_view. The buffer lives as long as the bytes."""
    pages = ffi.gc(view.data, partial(_free_buffer, view.buffer), view.size)
    return memoryview(ffi.buffer(pages, view.size)).toreadonly()


def _free_buffer(buffer: Any, _pages: Any, _free: Any = lib.phx_buffer_free) -> None:
    _free(buffer)


def private_bytes(view: Any, data: bytes | memoryview) -> memoryview:
    """Return writable bytes of a phx_view that belong to this caller: copy-on-write pages, or a copy.

    `data` are the bytes of the view. A view of None stands for bytes without one.
    """
    if view is None:
        return memoryview(bytearray(data))
    pages = lib.phx_private_pages(view.buffer)
    if pages == ffi.NULL:
        copy = bytearray(view.size)
        if view.size:
            lib.phx_copy(ffi.from_buffer(copy), view.data, view.size)
        return memoryview(copy)
    # Pages without a write still map the file; `data` keeps the node from reusing the file.
    owned = ffi.gc(pages, partial(_free_pages, view.size, data), view.size)
    return memoryview(ffi.buffer(owned, view.size))


def _free_pages(size: int, _data: bytes | memoryview, pages: Any, _free: Any = lib.phx_private_free) -> None:
    _free(pages, size)


def bytes_of(source: Any, writable: bool = False) -> Any:
    """Return the bytes of a buffer for the library. Use the result only in a `with` block.

    Before Python 3.13 the interpreter crashes if the cycle collector clears a memoryview whose bytes
    are still in use; an exception with its frames easily forms such a cycle.
    """
    return ffi.from_buffer(source, require_writable=writable)


def copy(to: memoryview, source: Any) -> None:
    """Copy bytes; the library uses several threads for large copies."""
    with bytes_of(source) as data, bytes_of(to, writable=True) as place:
        if len(data) != len(to):
            raise ValueError(f"{len(data)} bytes do not fill {len(to)}")
        lib.phx_copy(place, data, len(data))


def random_id() -> bytes:
    made = ffi.new("char[20]")
    lib.phx_id_random(made)
    return ffi.buffer(made, ID_BYTES)[:]


def id_from_name(name_space: str, name: str) -> bytes:
    made = ffi.new("char[20]")
    space, spelled = utf8(name_space, "name_space"), utf8(name, "name")
    lib.phx_id_from_name(space, len(space), spelled, len(spelled), made)
    return ffi.buffer(made, ID_BYTES)[:]


def send_name(client: Any, name_space: str, name: str) -> None:
    """Make a client of the library send this name along with the id that is derived from it."""
    space, spelled = name_space.encode(), name.encode()
    lib.phx_client_id(client, space, len(space), spelled, len(spelled), ffi.NULL)


def note_name(object_id: bytes, name_space: str, name: str) -> None:
    """Remember the name of an id, for `shown`. The oldest of many names are forgotten."""
    if object_id in _names:
        return
    if len(_names) >= _MAX_NAMES:
        # Another thread can change the table meanwhile; then it makes the room.
        with contextlib.suppress(RuntimeError, StopIteration):
            _names.pop(next(iter(_names)), None)
    _names[object_id] = name_space, name


def shown(object_id: bytes) -> str:
    """Return an id as errors show it: after its name, if this process knows one."""
    name_space, name = _names.get(object_id, ("", ""))
    # A control character would change the terminal that shows the error.
    if not name or not (name_space + name).isprintable():
        return object_id.hex()
    spelled = name if name_space == "default" else f"{name_space}:{name}"
    return f'"{spelled}" ({object_id.hex()})'


# ---- the package's files


def main() -> None:
    """Replace this process with the packaged executable, as the command ``phalanx``."""
    os.execv(EXECUTABLE, [EXECUTABLE, *sys.argv[1:]])


def get_include() -> str:
    """Return the folder to compile C programs with: ``#include "phalanx/c.h"`` with ``-I`` of it."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_include")


def get_library() -> str:
    """Return the path of ``libphalanx.so`` with the C functions, to link or to load.

    It needs only the C library, and finds the executable of private clusters beside itself.
    A linked program finds it at run time by ``-Wl,-rpath,`` and its folder.
    """
    return os.path.join(FOLDER, "libphalanx.so")
