"""The errors that Phalanx raises. Each is also a subclass of the matching built-in error.

``error.ref`` is the id of the object in hexadecimal, or None. ``error.node`` is the address of the
node that was asked, or None. All errors can be pickled. The exception of a producer
(`ObjectRef.set_exception`) is raised unchanged, with the producer's traceback as its cause.
"""

from __future__ import annotations


class PhalanxError(Exception):
    """The base class of all errors of this package.

    Parameters
    ----------
    message
        The event, its subject and its place.
    ref
        The id of the object as 40 hexadecimal digits.
    node
        "unix:PATH" of the node that was asked.
    """

    def __init__(self, message: str = "", ref: str | None = None, node: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.ref = ref
        self.node = node

    def __str__(self) -> str:  # KeyError.__str__ returns the repr
        return self.message

    def __reduce__(self) -> tuple[type[PhalanxError], tuple[str, str | None, str | None]]:
        return type(self), (self.message, self.ref, self.node)


class GetTimeoutError(PhalanxError, TimeoutError):
    """The timeout expired. The object can still arrive."""


class ObjectDeletedError(PhalanxError, KeyError):
    """The object existed, and was deleted, or freed with its last ref."""


class ObjectLostError(PhalanxError, KeyError):
    """Every node that had the object is gone. A new put restores the object."""


class ObjectExistsError(PhalanxError, ValueError):
    """Another object or reduction has this id, or the barrier has been passed."""


class InvalidArgumentError(PhalanxError, ValueError):
    """The call is invalid; the message names the argument."""


class ForeignRefError(PhalanxError, ValueError):
    """The ref belongs to a different cluster than the client."""


class StoreFullError(PhalanxError, MemoryError):
    """The node has no room, or the machine no memory, for the object."""


class DisconnectedError(PhalanxError, ConnectionError):
    """The node, or the directory behind it, cannot be reached. Values that are mapped stay readable.

    A client whose node is gone does not connect again: make another one. `phalanx.shutdown` makes the
    functions of the package connect again.
    """


class VersionError(PhalanxError, ConnectionError):
    """The node speaks another version of the protocol; the message names both and the hosts."""


class AccessError(PhalanxError, PermissionError):
    """The node belongs to another user, or the cluster's secret is missing or wrong."""


class ClosedError(PhalanxError, RuntimeError):
    """The client is closed, or was made before this process was forked; the rank of a session has left or died."""


class CallCancelledError(PhalanxError, RuntimeError):
    """The call was cancelled, or the open reduction behind the object lost its last client before its close."""


class MemberEndedError(PhalanxError, RuntimeError):
    """The task is a member of its job no longer: a newer life of it has joined, or it counts as dead for the others."""


class MemberUnavailableError(PhalanxError, ConnectionError):
    """The task to which a message was sent is not live, has died meanwhile, or has another life.

    In a call of a group: a member has ended, and the group neither waits for it nor goes on without it.
    """


class GroupResultLostError(PhalanxError, RuntimeError):
    """This member cannot get the result of a group's call any more.

    Some members have their parts of it, or had it, and have ended; or the result that `Group.result` asks for,
    or that a session repeats, is not kept any more.
    """


class CallNotEndedError(InvalidArgumentError):
    """The call whose result `Group.result` asks for has not ended in the group."""


class TableFailedError(PhalanxError, RuntimeError):
    """All calls for this table of a parameter server fail: its own update has raised, or a server has lost its part of it.

    The message has the text of the update's exception.
    """


class MessagesLostError(PhalanxError, ConnectionError):
    """Messages before this one were lost with the connection between the nodes; this one was not sent."""


class StreamVoidError(PhalanxError, RuntimeError):
    """The stream is void: the object was lost during it and another generation replaced it."""


class ProducerError(PhalanxError, RuntimeError):
    """The producer marked the object as failed. Raised if the producer's own exception cannot be."""


class ValueFormatError(PhalanxError, ValueError):
    """The metadata or bytes of an object are not in this package's format. No code of the object ran."""


class PickleRefusedError(PhalanxError, TypeError):
    """``allow_pickle=False`` was given, and the value needs pickle."""


class RemoteTraceback(Exception):
    """The producer's traceback as text: the cause of the producer's exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
