"""What the examples share: their flags, the program of a server, and that of a worker.

A model has

    batch(rank, workers, clock)    what a worker does in a clock: `keys` that it pulls (None: all keys of a dense
                                   table), and `push(values)`, which returns the keys and the rows that it pushes
    reported()                     the keys of which the final values are reported
    report(values)                 one line about them

`phalanx launch` starts all processes with the same arguments, and the role of each is in PHALANX_ROLE. A server needs no
model. A worker keeps nothing from one clock to the next: its next life, which begins at the clock that the servers know,
makes the same pushes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable
from typing import Any

# The workers share the cores, and the threads of a matrix product would wait for each other. The order of the sums in
# one depends on their number, too. Before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

STALENESS = 3  # with SSP


def parser(about: str, clocks: int) -> argparse.ArgumentParser:
    """Return the flags that all examples have."""
    flags = argparse.ArgumentParser(description=about.splitlines()[0])
    flags.add_argument("--sync", choices=["bsp", "ssp", "asp"], default="bsp", help="the consistency of the table")
    flags.add_argument("--clocks", type=int, default=clocks, help="how many each worker makes (%(default)s)")
    flags.add_argument("--serial", type=int, metavar="WORKERS", help="the same as BSP with so many workers, in this process")
    return flags


def run(args: argparse.Namespace, table: dict[str, Any], make: Callable[[int], Any]) -> None:
    """Be what the launch has started this process as, or do the work of all. `make(workers)` returns the model."""
    if args.serial:
        replay(args, table, make(args.serial))
    elif os.environ.get("PHALANX_ROLE") == "server":
        serve(args, table)
    else:
        work(args, table["name"], make)


def line(sync: str, model: Any, values: Any) -> str:
    """Return what is printed of the final values: their hash is the same if all of their bits are."""
    return f"{sync}: {model.report(values)}, table {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"


def serve(args: argparse.Namespace, table: dict[str, Any]) -> None:
    import phalanx.ps

    with phalanx.ps.server() as server:
        server.table(**table, sync=args.sync, staleness=STALENESS if args.sync == "ssp" else 0)
        server.run()


def work(args: argparse.Namespace, name: str, make: Callable[[int], Any]) -> None:
    import phalanx.ps

    with phalanx.ps.worker() as worker:
        table, model = worker.table(name), make(worker.workers)
        while table.clocks.own < args.clocks:
            clock = table.clocks.own
            batch = model.batch(worker.rank, worker.workers, clock)
            values = table.pull_dense() if batch.keys is None else table.pull(batch.keys)
            keys, rows = batch.push(values)
            if keys is None:
                table.push_dense(rows)
            else:
                table.push(keys, rows)
            table.clock()
        worker.barrier()  # all pushes have come: with SSP and ASP a pull does not wait for them
        if worker.rank == 0:
            keys = model.reported()
            values = table.pull_dense() if keys is None else table.pull(keys)
            print(line(args.sync, model, values), flush=True)


def replay(args: argparse.Namespace, table: dict[str, Any], model: Any) -> None:
    """Do what the workers and servers do under BSP, clock by clock, without them."""
    from replay import Replay

    replayed = Replay(**table)
    for clock in range(args.clocks):
        batches = [model.batch(rank, args.serial, clock) for rank in range(args.serial)]
        replayed.turn([batch.push(replayed.pull(batch.keys)) for batch in batches])
    print(line("bsp", model, replayed.pull(model.reported())))
