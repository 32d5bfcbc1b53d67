"""The address that a process gives to its children, and the one that it got from its parent.

A process offers its children the address of its default client if the program named one, else that
of its private cluster. A child of fork has this module's state. A child of spawn or forkserver, or
of joblib's processes, has `_config` of its own multiprocessing process. That is a shallow copy of
its parent's, made with the Process object, so the list in it is the parent's until the start of the
child pickles it: the offers are those at the start. A Process object has no list if it is older than
the first offer and the program imported multiprocessing after this package, which does not import it
before that: the import takes some milliseconds. The environment would reach other programs, too, and
is not safe to change while threads of other libraries read it.

Any thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import namedtuple

TYPE_CHECKING = False  # as in _values/_wire.py
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class Offer(NamedTuple):
        """An address for the children of the process `pid`, of its private cluster or of its default client.

        `setting` is PHALANX_ADDRESS there. A child in which it is another one uses that.
        """

        pid: int
        address: str
        private: bool
        setting: str | None
else:
    Offer = namedtuple("Offer", "pid address private setting")

_KEY = "phalanx"
# From the oldest ancestor to this process, which can have two: that of its private cluster comes
# before that of its default client. Replaced as a whole, under the lock.
_offers: tuple[Offer, ...] = ()
_lock = threading.Lock()


def _after_fork() -> None:
    """Replace a lock that a thread of the parent can have held at the fork."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _shared() -> list[tuple[Any, ...]]:
    """Return the list of offers that Process objects made in this process share."""
    from multiprocessing import process

    # There is no public place for settings of children. The tests create children in every way.
    config = process.current_process()._config  # type: ignore[attr-defined]
    shared: list[tuple[Any, ...]] | None = config.get(_KEY)
    if shared is None:
        # A Process object that is older than this module has none; a forked child has `_offers`.
        shared = config[_KEY] = [tuple(each) for each in _offers]
    return shared


if "multiprocessing.process" in sys.modules:
    _shared()  # before the program makes Process objects


def _setting() -> str | None:
    return os.environ.get("PHALANX_ADDRESS")


def _known() -> tuple[Offer, ...]:
    # Not at import: a child of spawn imports the program's main module before it has its process.
    return _offers or tuple(Offer(*each) for each in _shared())


def _publish(offers: tuple[Offer, ...]) -> None:
    global _offers
    _offers = offers
    _shared()[:] = [tuple(each) for each in offers]


def offer(address: str, *, private: bool) -> None:
    """Offer an address to children that this process starts from now on."""
    made = Offer(os.getpid(), address, private, _setting())
    with _lock:
        kept = _without(private)
        if private:
            mine = len([each for each in kept if each.pid != made.pid])
            _publish((*kept[:mine], made, *kept[mine:]))
        else:
            _publish((*kept, made))


def withdraw() -> None:
    """Stop offering the default client's address. That of a private cluster, which lives on, stays."""
    with _lock:
        kept = _without(private=False)
        if kept != _known():
            _publish(kept)


def _without(private: bool) -> tuple[Offer, ...]:
    """Return all offers but this process's of one kind."""
    return tuple(each for each in _known() if (each.pid, each.private) != (os.getpid(), private))


def received() -> Offer | None:
    """Return the offer of this process's parent; None if there is none, or PHALANX_ADDRESS has changed."""
    pid = os.getpid()
    last = next((each for each in reversed(_known()) if each.pid != pid), None)
    return last if last is not None and last.setting == _setting() else None
