"""The errors that Phalanx raises, each also the built-in error that it is a kind of.

Every error names what it is about: ``error.ref`` is the object's id in hexadecimal or None, ``error.node``
the address of the node that was asked, or None. All of them can be pickled. What a producer raised
(`ObjectRef.set_exception`) is raised as it was, with the producer's traceback as its cause.
"""

from __future__ import annotations


class PhalanxError(Exception):
    """What all errors of this package are.

    Parameters
    ----------
    message
        What happened, to what, and where.
    ref
        The object's id as 40 hexadecimal digits.
    node
        "unix:PATH" of the node that was asked.
    """

    def __init__(self, message: str = "", ref: str | None = None, node: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.ref = ref
        self.node = node

    def __str__(self) -> str:  # KeyError's own shows the repr
        return self.message

    def __reduce__(self) -> tuple:
        return type(self), (self.message, self.ref, self.node)


class GetTimeoutError(PhalanxError, TimeoutError):
    """The time given was over first. The object may still come."""


class ObjectDeletedError(PhalanxError, KeyError):
    """The object was there and has been deleted, or freed with its last reference."""


class ObjectLostError(PhalanxError, KeyError):
    """Every node that had the object is gone. Putting it again brings it back."""


class ObjectExistsError(PhalanxError, ValueError):
    """Another object, or another reduction, has that id."""


class InvalidArgumentError(PhalanxError, ValueError):
    """The call cannot be carried out as it was made; the message names the argument."""


class ForeignRefError(PhalanxError, ValueError):
    """The ref belongs to another cluster than the client that it was given to."""


class StoreFullError(PhalanxError, MemoryError):
    """The node has no room, or the machine no memory, for the object."""


class DisconnectedError(PhalanxError, ConnectionError):
    """The node, or the directory behind it, cannot be reached. What is mapped already stays readable."""


class VersionError(PhalanxError, ConnectionError):
    """The node speaks another version of the protocol; the message names both and the hosts."""


class AccessError(PhalanxError, PermissionError):
    """The node belongs to another user, or the cluster's secret is missing or wrong."""


class ClosedError(PhalanxError, RuntimeError):
    """The client is closed, or was made before this process was forked."""


class CallCancelledError(PhalanxError, RuntimeError):
    """The call was cancelled."""


class StreamVoidError(PhalanxError, RuntimeError):
    """What a stream had read is void: the object was lost half-way, and another attempt took its place."""


class ProducerError(PhalanxError, RuntimeError):
    """Who was to put the object said that it cannot; raised when its own exception cannot be."""


class ValueFormatError(PhalanxError, ValueError):
    """An object's metadata or bytes are not what this package writes; nothing of it was run."""


class PickleRefusedError(PhalanxError, TypeError):
    """``allow_pickle=False`` was given, and the value cannot travel without pickle."""


class RemoteTraceback(Exception):
    """The producer's traceback, as text: the cause of what it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
