"""The default client: the one that the functions of the package use.

Owns this client: it connects at the first use, again in a child of fork, and closes at the exit of
the process. Installs itself as the client of refs that have none.
"""

from __future__ import annotations

import atexit
import os
import threading

from phalanx import _ref, exceptions
from phalanx._client import Client
from phalanx._connection import DEFAULT, address_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_lock = threading.Lock()
_client: Client | None = None
_options: dict[str, Any] = {}


def client() -> Client:
    """Return the default client. Connects if there is none, or if it was made before a fork."""
    current = _client
    if current is not None and not current.closed and not current.forked:
        return current
    return init()


_ref.use_default_client(client)


def init(
    address: str | os.PathLike[str] | None = None,
    *,
    timeout: float | None = DEFAULT,
    connect_timeout: float | None = 10.0,
    capacity: int = 0,
) -> Client:
    """Connect the default client, and return it. Returns the present one if it is connected this way.

    Arguments and errors are those of `Client`. An argument that is left out matches any connection.

    Raises
    ------
    InvalidArgumentError
        The default client is connected to another address, or has other options.
    """
    global _client, _options
    given = {
        "timeout": (timeout, DEFAULT),
        "connect_timeout": (connect_timeout, 10.0),
        "capacity": (capacity, 0),
    }
    options: dict[str, Any] = {name: value for name, (value, default) in given.items() if value != default}
    path = address_of(address)
    with _lock:
        if _client is not None and not _client.closed and not _client.forked:
            same = not options or options == _options
            if same and (not path or _client.address == f"unix:{path.removeprefix('unix:')}"):
                return _client
            raise exceptions.InvalidArgumentError(
                f"the default client is connected to {_client.address} with the options {_options}, not to "
                f"{path or 'any node'} with {options}: call phalanx.shutdown() first, or make a phalanx.Client"
            )
        _client = Client(path, **options)
        _options = options
        # Children inherit the environment and private clusters anyway.
        if path:
            _client._offer()
        return _client


def _after_fork() -> None:
    """Replace a lock that a thread of the parent can have held at the fork."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def shutdown() -> None:
    """Close the default client, if there is one. The next call of a function connects again."""
    global _client
    with _lock:
        closing, _client = _client, None
        # Under the lock, because another thread can connect with an address of its own next.
        if closing is not None:
            closing._withdraw()
    if closing is not None:
        closing.close()
