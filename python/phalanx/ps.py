"""Parameter servers: servers hold tables, workers push updates and pull values, each at its own pace. The guide is
docs/parameter-server.md.

>>> import threading
>>> import numpy as np
>>> import phalanx
>>> import phalanx.ps
>>> own = phalanx.Client(phalanx.init().address)       # servers and workers of one process have a client each
>>> def serve():
...     with phalanx.ps.server("fit", "server0", world=1, client=own) as server:
...         server.table("w", keys=3, dtype="f64", update="sgd", rate=0.5)
...         server.run()
>>> thread = threading.Thread(target=serve)
>>> thread.start()
>>> with phalanx.ps.worker("fit", "worker0", world=1) as worker:  # under `phalanx launch`: worker()
...     table = worker.table("w")
...     while table.clocks.own < 4:
...         w = table.pull_dense()
...         table.push_dense(w - np.array([1.0, 2.0, 4.0]))
...         table.clock()
...     w = table.pull_dense()
>>> thread.join()
>>> w
array([0.9375, 1.875 , 3.75  ])
"""

from __future__ import annotations

from phalanx._default import client as _default_client
from phalanx._jobs import ps_servers as _servers
from phalanx._jobs import ps_workers as _workers
from phalanx._jobs.ps_calls import PulledRows, Reply, TableCall
from phalanx._jobs.ps_servers import Request, Server
from phalanx._jobs.ps_specs import TableSpec
from phalanx._jobs.ps_workers import Clocks, Table, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from phalanx._client import Client

__all__ = [
    "Clocks",
    "PulledRows",
    "Reply",
    "Request",
    "Server",
    "Table",
    "TableCall",
    "TableSpec",
    "Worker",
    "server",
    "worker",
]


def server(
    job: str | None = None,
    task: str | None = None,
    world: int | None = None,
    *,
    server_role: str = "server",
    worker_role: str = "worker",
    client: Client | None = None,
    peer_timeout: float | None = 300.0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
) -> Server:
    """Join a job as a server.

    What is left out is what ``phalanx launch`` has set for this task: ``PHALANX_JOB``, ``PHALANX_TASK`` and
    ``PHALANX_WORLD``.

    Parameters
    ----------
    job
        The name of the job: servers and workers that name the same one work together.
    task
        The name of this task. One that joins again has the same rank and the next life.
    world
        The number of servers, the same for all of them.
    server_role, worker_role
        The roles of the job, the same for all servers and workers.
    client
        The connection. None: that of the functions of this package. Tasks in one process have a client each.
    peer_timeout
        Seconds to join, to find the snapshots of an earlier life, and for which `Server.run` waits while no worker lives;
        None: no limit.
    checkpoint_dir
        A directory where the server also writes its snapshots, and from which the job goes on when all nodes have ended.
        All servers have one, or none; it exists. None: ``PHALANX_CHECKPOINT_DIR``, else none.

    Raises
    ------
    InvalidArgumentError
        An argument is missing, or contradicts what other tasks of the job have said.
    StoreFullError
        Every rank has had a task with another name, or the directory has too many jobs.
    """
    connection = client or _default_client()
    return _servers.join(connection, job, task, world, server_role, worker_role, peer_timeout, checkpoint_dir)


def worker(
    job: str | None = None,
    task: str | None = None,
    world: int | None = None,
    *,
    server_role: str = "server",
    worker_role: str = "worker",
    client: Client | None = None,
    peer_timeout: float | None = 300.0,
) -> Worker:
    """Join a job as a worker. Waits for all servers.

    The parameters are those of `server`, with `world` for the number of workers.

    Parameters
    ----------
    peer_timeout
        Seconds for which joining waits for the servers, a push for room, `Worker.barrier` for the other workers, and
        `Worker.leave` for snapshots; None: no limit. Pulls and requests wait without a limit of their own.

    Raises
    ------
    GetTimeoutError
        Not all servers have come within `peer_timeout`; the message names those that have not.
    InvalidArgumentError, StoreFullError
        As `server`.
    """
    return _workers.join(client or _default_client(), job, task, world, server_role, worker_role, peer_timeout)
