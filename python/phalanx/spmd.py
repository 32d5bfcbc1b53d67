"""Sessions: programs of many ranks that survive the deaths of some. The guide is docs/jobs.md.

>>> import numpy as np
>>> import phalanx.spmd
>>> with phalanx.spmd.join("train", "worker0", world=1) as session:  # under `phalanx launch`: join()
...     version, model = session.load()
...     if version == 0:
...         model = np.zeros(3)
...     while session.version < 5:
...         model += session.allreduce(prepare=lambda: np.ones(3), shape=3, dtype="f8")
...         session.checkpoint(model)
>>> model
array([5., 5., 5.])
"""

from __future__ import annotations

from phalanx._default import client as _default_client
from phalanx._jobs.sessions import Session, SessionCall, SessionStats
from phalanx._jobs.sessions import join as _join

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from phalanx._client import Client

__all__ = ["Session", "SessionCall", "SessionStats", "join"]


def join(
    job: str | None = None,
    task: str | None = None,
    world: int | None = None,
    *,
    role: str | None = None,
    client: Client | None = None,
    result_copies: int = 2,
    local_copies: int = 2,
    peer_timeout: float | None = 300.0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
) -> Session:
    """Join a job as a rank of a session. A rank in its first life waits for all others.

    What is left out is what ``phalanx launch`` has set for this task: ``PHALANX_JOB``, ``PHALANX_TASK``,
    ``PHALANX_WORLD`` and ``PHALANX_ROLE`` ("worker" without it).

    Parameters
    ----------
    job
        The name of the job: tasks that name the same one work together.
    task
        The name of this task. One that joins again has the same rank and the next life.
    world
        The number of ranks, the same for all of them.
    role
        Tasks of different roles have ranks, and sessions, of their own.
    client
        The connection. None: that of the functions of this package. Ranks in one process have a client each.
    result_copies
        On how many hosts the result of each call is kept, 1 to 16; on all, if these are fewer. A host loses what it
        has when it ends, and when its last rank dies.
    local_copies
        On how many hosts other than the rank's each local model is kept, 1 to 15; on all, if these are fewer.
    peer_timeout
        Seconds for which a call waits for the other ranks: for those that are slow, and for the next lives of those
        that have died; None: no limit. Longer than a rank takes to start and to read its input again.
    checkpoint_dir
        A folder into which checkpoints are written as well: a job whose ranks have all died goes on from there.
        None: ``PHALANX_CHECKPOINT_DIR``, else none.

    Raises
    ------
    InvalidArgumentError
        An argument is missing, or contradicts what other tasks of the job have said.
    GetTimeoutError
        Not all ranks have come within `peer_timeout`; the message names those that have not.
    StoreFullError
        Every rank has had a task with another name, or the directory has too many jobs.
    """
    connection = client or _default_client()
    return _join(connection, job, task, world, role, result_copies, local_copies, peer_timeout, checkpoint_dir)
