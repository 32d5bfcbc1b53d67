"""References to objects, and the holds that they count for.

Owns `ObjectRef`: its identity, its holds in each connection, and its pickled form. A ref's own
methods (`get`, `future`, ...) call the client that made it; without one they call the default client,
which the facade installs by `use_default_client`, because clients are built above refs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence

from phalanx import _arguments, _connection, _native, _status, _values, exceptions
from phalanx._connection import DEFAULT
from phalanx._native import ffi, lib
from phalanx._typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    import concurrent.futures
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._typing import OnLost, Writable

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co")

_LOOPBACKS = ("127.", "localhost:", "[::1]:")


class ObjectRef(Generic[T_co]):
    """The name of an immutable object. The object need not exist yet.

    A ref is small, can be pickled, hashed and compared, and means the same object on every host of
    its cluster. ``await ref`` returns the value. Any thread can use it. For type checkers,
    ``ObjectRef[T]`` is the ref of an object whose value is a `T`; `phalanx.put` returns one.

    An object is freed when the last ref to it, in all processes, is gone (docs/lifetime.md). Objects
    with a name (`from_name`) and objects that were put with ``keep=True`` stay until they are deleted.

    Parameters
    ----------
    object_id
        20 bytes.
    cluster
        The address of its cluster's directory. Empty: the cluster of the first client that uses
        the ref.

    See Also
    --------
    phalanx.ref : A ref to an object that will be put later.
    """

    __slots__ = (
        "__weakref__",
        "_client",
        "_cluster",
        "_held",
        "_id",
        "_name",
        "_named",
        "_reason",
        "_stored",
        "_token",
    )

    def __init__(self, object_id: bytes, cluster: str = "", *, client: Connection | None = None) -> None:
        if not isinstance(object_id, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"an object id has {_native.ID_BYTES} bytes and is no {type(object_id).__name__}:"
                " phalanx.ref(name) is the ref of a name, phalanx.ref() a new one"
            )
        if len(object_id) != _native.ID_BYTES:
            raise exceptions.InvalidArgumentError(
                f"an object id has {_native.ID_BYTES} bytes, not {len(object_id)}"
            )
        # By connection that has used this ref: its hold, which ends with the ref.
        self._held: dict[Connection, Any] = {}
        self._named = False
        # The namespace and the name.
        self._name: tuple[str, str] | None = None
        # The object with a producer's long exception: it lives as long as this ref.
        self._reason: ObjectRef | None = None
        # The metadata and size of the object that this process has put under this ref; another one
        # can be there by now.
        self._stored: tuple[bytes, int] | None = None
        self._token: bytes | None = None
        self._id = bytes(object_id)
        self._cluster = cluster
        self._client = client

    @classmethod
    def from_name(cls, name: str, name_space: str = "default") -> ObjectRef[Any]:
        """Return the ref of a name. The same name gives the same ref everywhere.

        Parameters
        ----------
        name, name_space
            Any text. C++ programs and ``phalanx put --name`` find the same object. Up to 255 bytes
            of UTF-8 each, without control characters, are kept with the object: `name` and
            `Client.stat`, ``phalanx ls`` and errors show them.
        """
        ref = cls(_native.id_from_name(name_space, name))
        ref._have_name(name_space, name)
        return ref

    @classmethod
    def from_hex(cls, text: str) -> ObjectRef[Any]:
        """Return the ref whose `hex` is `text`.

        Raises
        ------
        InvalidArgumentError
            `text` is not 40 hexadecimal digits.
        """
        _arguments.utf8(text, "text")
        try:
            return cls(bytes.fromhex(text))
        except ValueError as error:
            raise exceptions.InvalidArgumentError(
                f"no object id: {_arguments.shown(text)}; an id has 40 hexadecimal digits"
            ) from error

    @property
    def id(self) -> bytes:
        """The object id, 20 bytes."""
        return self._id

    def hex(self) -> str:
        """Return the id as 40 hexadecimal digits, as ``phalanx describe`` takes it."""
        return self._id.hex()

    @property
    def name(self) -> str | None:
        """The name that the ref was made from; None: the ref has no name."""
        return self._name and self._name[1]

    @property
    def name_space(self) -> str | None:
        """The namespace of the name; None: the ref has no name."""
        return self._name and self._name[0]

    def _have_name(self, name_space: str, name: str) -> None:
        self._named = True
        self._name = (name_space, name)
        _native.note_name(self._id, name_space, name)

    # ---- the object, through the client that made this ref, or else the default one

    def _connected(self) -> Any:
        """Return a usable client. It is Any because the type Client is defined above this module."""
        if self._client is not None and not self._client.ended:
            return self._client
        return _default_client()

    def get(
        self,
        timeout: float | None = DEFAULT,
        *,
        copy: bool | None = None,
        out: Any = None,
        writable: Writable | None = None,
        allow_pickle: bool = True,
        on_lost: OnLost = "raise",
        progress: bool = False,
    ) -> T_co:
        """Return the object's value; see `phalanx.get`."""
        return self._connected().get(
            self,
            timeout,
            copy=copy,
            out=out,
            writable=writable,
            allow_pickle=allow_pickle,
            on_lost=on_lost,
            progress=progress,
        )

    def set_exception(self, error: BaseException) -> None:
        """Mark the object as failed: it will not be put.

        Gets raise `error` with this traceback as its cause, and reductions do without the object. A
        later put cancels the failure.

        Raises
        ------
        ObjectExistsError
            The object exists already.
        """
        self._connected().set_exception(self, error)

    def future(self) -> concurrent.futures.Future[T_co]:
        """Return a future of the value. A thread of the client fulfils it.

        Cancelling the future ends this wait only. The future's exceptions are those of `get`.
        """
        return self._connected().future(self)

    def stream(self, nbytes: int = 1 << 20, timeout: float | None = DEFAULT) -> Iterator[memoryview]:
        """Iterate over the bytes of the object while they arrive; see `Client.stream`."""
        return self._connected().stream(self, nbytes, timeout)

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._connected().get_async(self).__await__()

    # ---- as a value

    def __eq__(self, other: object) -> bool:
        return self._id == other._id if isinstance(other, ObjectRef) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __lt__(self, other: object) -> bool:
        return self._id < other._id if isinstance(other, ObjectRef) else NotImplemented

    def __repr__(self) -> str:
        if self._name is None:
            return f"ObjectRef({self.hex()})"
        space = "" if self._name[0] == "default" else f", name_space={self._name[0]!r}"
        return f"ObjectRef({self.hex()}, name={self._name[1]!r}{space})"

    def _repr_html_(self) -> str:
        return _status.code(repr(self))

    # ---- lifetime

    def _hold(self, connection: Connection) -> None:
        """Take a hold with this connection, unless this ref has one already; or send its name."""
        if connection in self._held:
            return
        if self._named:
            if self._name is not None:
                # Each time: a connection remembers a limited number of names.
                _native.send_name(connection._ptr, *self._name)
            return
        # A token keeps the object alive in transit. It is claimed once; later connections take a
        # plain hold.
        token, self._token = self._token, None
        if token is not None:
            code = lib.phx_claim(connection._ptr, self._id, token, len(token))
        else:
            code = lib.phx_hold(connection._ptr, self._id, 1)
        if code == 0:
            self._counts_with(connection)
            self._cluster = self._cluster or connection.directory

    def _counts_with(self, connection: Connection) -> None:
        """Own a hold that the connection has taken for this ref."""
        # Replacing the entry ends the hold that the ref had before.
        self._held[connection] = ffi.gc(lib.phx_ref_of(connection._ptr, self._id), lib.phx_ref_free)
        # Most refs count with their own client. `ended` calls the library, so it is asked last.
        if self._client is not connection and (self._client is None or self._client.ended):
            self._client = connection

    def __copy__(self) -> ObjectRef[T_co]:
        return self

    def __deepcopy__(self, memo: Any) -> ObjectRef[T_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        met = _values.collecting()
        if met is not None:
            # The object that will contain this ref holds it.
            met.append(self._id)
            return _received, (self._id, self._cluster, None, self._name or self._named)
        # In a message nothing holds the object, so a token keeps it until the receiver claims it.
        token = None
        holder = next((client for client in list(self._held) if not client.ended), None)
        if holder is not None:
            place = ffi.new("char[24]")
            if lib.phx_transit(holder._ptr, self._id, place) == 0:
                token = ffi.buffer(place, 24)[:]
        return _received, (self._id, self._cluster, token, self._name or self._named)


# Returns the default client. `use_default_client` sets it before a program can have a ref.
_default_client: Callable[[], Any]


def use_default_client(function: Callable[[], Any]) -> None:
    """Install the function that returns the default client, for refs without a client of their own."""
    global _default_client
    _default_client = function


# ---- refs as arguments of calls


def made_by(connection: Connection, name: str | None = None) -> ObjectRef:
    """Return a new ref, or the ref of a name, that counts with a connection; see `Client.ref`."""
    made = _native.random_id() if name is None else _native.id_from_name("default", name)
    ref = ObjectRef(made, connection._directory, client=connection)
    if name is not None:
        ref._have_name("default", name)
    ref._hold(connection)
    return ref


def checked(ref: Any) -> ObjectRef:
    """Return the argument, a ref; raise TypeError for other values."""
    if type(ref) is ObjectRef or isinstance(ref, ObjectRef):
        return ref
    raise TypeError(f"an ObjectRef is expected, not {_arguments.shown(ref)}{_remedy_for(ref)}")


def several(refs: Any, call: str, or_one: bool = False) -> list[ObjectRef]:
    """Return the argument of a call, an iterable of refs, as a list; raise TypeError for other values.

    `id_for` checks the items. `or_one`: the call also takes one ref, which it has looked for already.
    """
    if isinstance(refs, ObjectRef):
        raise TypeError(f"{call} takes a list of refs, not one ref: write [ref]")
    if isinstance(refs, (str, bytes, dict)) or not hasattr(type(refs), "__iter__"):
        takes = "an ObjectRef or a list of them" if or_one else "a list of ObjectRefs"
        raise TypeError(f"{call} takes {takes}, not {_arguments.shown(refs)}{_remedy_for(refs)}")
    return list(refs)


def _remedy_for(value: Any) -> str:
    """Return how to get the ref, or refs, for a value that is given instead, for errors."""
    if isinstance(value, dict):
        return ": list(refs.values()) are the refs of a dict"
    if isinstance(value, (list, tuple)):
        return ": give each ref itself"
    if not isinstance(value, str):
        return ": phalanx.put(value) returns the ref of a value, phalanx.ref(name) that of a name"
    if len(value) == 2 * _native.ID_BYTES and value.isalnum():
        return ": phalanx.ObjectRef.from_hex(text) is the ref of an id"
    return f": phalanx.ref({_arguments.shown(value)}) is the ref of that name"


def id_for(connection: Connection, ref: ObjectRef, sends_name: bool = True) -> bytes:
    """Return the id of a ref for a call of this connection, which takes a hold for the ref.

    `sends_name`: the call creates or fetches the object, so the node gets its name, if there is one.

    Raises
    ------
    TypeError
        It is no ref.
    ForeignRefError
        The ref is of another cluster.
    """
    theirs, ours = checked(ref)._cluster, connection._directory
    # One directory can have several spellings, so only addresses that cannot be aliases are an
    # error.
    if theirs and theirs != ours and _tells_clusters_apart(theirs, ours):
        raise exceptions.ForeignRefError(
            f"{ref!r} belongs to the cluster whose directory is at {theirs}; this client is connected to "
            f"{connection._address}, in the cluster whose directory is at {ours}. Use a client of that cluster, "
            "phalanx.Client(address), with the `address` of a client there. Create child processes after the "
            "parent's first call or phalanx.init(); for spawn, under `if __name__ == \"__main__\"`",
            ref.hex(),
            connection._address,
        )
    if (sends_name or not ref._named) and connection not in ref._held:
        ref._hold(connection)
    return ref._id


def ids_for(connection: Connection, refs: Sequence[ObjectRef], sends_names: bool = True) -> bytes:
    """Return the ids of refs in a row; see `id_for`."""
    return b"".join([id_for(connection, ref, sends_names) for ref in refs])


def _tells_clusters_apart(one: str, other: str) -> bool:
    """Whether two spellings of directories certainly mean different clusters.

    Two loopback addresses do; a directory that other hosts reach can have several names.
    """
    return any(spelled.startswith(_LOOPBACKS) for spelled in (one, other))


# ---- refs in messages and in objects

# `context`: the `reading` of an object on this thread.
_reading = threading.local()


class reading:
    """The context in which refs that are unpickled on this thread count with `connection`.

    Their holds are sent together at its end; until then the object that contains the refs holds theirs.
    """

    __slots__ = ("_connection", "_outer", "refs")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.refs: list[ObjectRef] = []

    def __enter__(self) -> None:
        self._outer = getattr(_reading, "context", None)
        _reading.context = self

    def __exit__(self, *_: object) -> None:
        _reading.context = self._outer
        if self.refs:
            with self._connection._batch():
                for ref in self.refs:
                    ref._hold(self._connection)


def _received(
    object_id: bytes, cluster: str, token: bytes | None, named: bool | tuple[str, str]
) -> ObjectRef:
    """Rebuild a ref from a message or from an object. Pickles name this function.

    `named` is the namespace and the name, or whether the ref is one of a name that is not known.
    """
    ref = ObjectRef(object_id, cluster)
    ref._token = token
    if isinstance(named, tuple):
        ref._have_name(*named)
    else:
        ref._named = named
    context = getattr(_reading, "context", None)
    if context is not None:
        context.refs.append(ref)
        return ref
    connection = _connection.of_cluster(cluster)
    if connection is not None:
        ref._hold(connection)
    return ref
