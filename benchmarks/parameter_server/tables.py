"""Servers and workers of tables: the ops ps_... of benchmarks/run.

Each is a process of ps_rank, whose events this process reads, and which it kills and starts again as `phalanx launch` does.
"""

import os
import pathlib
import statistics
import tempfile
import time

from benchmarks import session_jobs
from benchmarks.clusters import Cluster
from benchmarks.event_jobs import EventJob
from benchmarks.parameter_server import plans, programs
from benchmarks.records import BadInput, summarize

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "bazel-bin/benchmarks/parameter_server/ps_rank"

FLOAT_BYTES = 4
MODEL_BYTES = 32 << 20
# Of ps_rows_...: as of plans.WORKS.
ROWS = 100_000
ROW_FLOATS = plans.ROW_FLOATS
SORTED_KEYS = 10_000_000
# Workers of these ops, if there are no others: one server and seven hosts with workers.
STALENESS = 3
STRAGGLER_CLOCKS = 200
STRAGGLER = {"ms": 50, "slow_ms": 250, "slow": 0.2}
FROZEN_MS = 20
# Before a worker is frozen or a server is killed, and how long the rate of the others is watched then.
CLOCKS_BEFORE = 25
WATCH_S = 5
ENDLESS = 1 << 40
SNAPSHOT_EVERY = 10
SNAPSHOT_CLOCKS = 30
SNAPSHOT_MS = 1000
FLAT_CLOCKS = 10_000
FLAT_KEYS = 256

# The ops of one clock or one push and pull: the table, and what a worker does with `size` bytes.
DENSE = {"ps_dense_clock": "sum", "ps_dense_clock_own": "own"}
KEYED = tuple(f"ps_{what}_{verb}{first}" for what in ("sorted", "rows") for verb in ("push", "pull") for first in ("", "_first"))
WATCHED = ("ps_stragglers", "ps_frozen", "ps_kill_server", "ps_snapshots", "ps_flat")
OPS = (*DENSE, *KEYED, *WATCHED)


def require_program():
    if not os.access(PROGRAM, os.X_OK):
        raise BadInput(f"{PROGRAM} is not there: scripts/bazel build //benchmarks/parameter_server:ps_rank")


def dense_work(size, update, runs, width):
    if size % (FLOAT_BYTES * width) != 0:
        raise BadInput(f"the size {size} is no whole number of rows of {width} floats")
    return {"keys": size // FLOAT_BYTES // width, "width": width, "update": update, "sync": "bsp", "work": "dense", "runs": runs}


def keyed_work(op, size, runs):
    """Work on keys of which none follows another one. With _first each run has other keys, else all have those of the first one."""
    rows = op.startswith("ps_rows")
    count = size // FLOAT_BYTES // (ROW_FLOATS if rows else 1)
    first = op.endswith("_first")
    work = {"update": "assign", "sync": "asp", "work": "pull" if "_pull" in op else "push", "rows": count, "runs": runs,
            "other": 1 if first else 0}
    if rows:
        # Sparse, as embeddings are.
        return {**work, "keys": 0, "width": ROW_FLOATS, "split": "hash", "stride": 1_000_003}
    return {**work, "keys": 2 * count + runs, "width": 1, "stride": 2}


class TableJob(EventJob):
    """Servers and workers with one table, from start to stop."""

    def __init__(self, cluster, name, layout, work):
        super().__init__(cluster, name)
        self.layout, self.work = layout, work
        self.servers = [f"server{rank}" for rank in range(layout.servers)]
        self.workers = [f"worker{rank}" for rank in range(layout.workers)]

    def __enter__(self):
        for rank, server in enumerate(self.servers):
            self.start(server, self.layout.host_of_server(rank))
        for rank, worker in enumerate(self.workers):
            self.start(worker, self.layout.host_of_worker(rank))
        return self

    def start(self, key, host, spares=0):
        """Starts a server or a worker; with a number of spares one of these, which waits until a server has died."""
        role = "server" if spares else key.rstrip("0123456789")
        of_role = self.servers if role == "server" else self.workers
        place = {"PHALANX_ADDRESS": f"unix:{self.cluster.socket(host)}", "PHALANX_JOB": self.name, "PHALANX_TASK": key,
                 "PHALANX_WORLD": str(len(of_role)), "PHALANX_ROLE": role}
        if spares:
            place |= {"PHALANX_SPARES": str(spares), "PHALANX_SPARE_AFTER": "0s"}
        words = [f"{name}={value}" for name, value in self.work.items()]
        self.start_process(key, host, [str(PROGRAM), role, str(self.path(key)), *words], place)

    def wait_for_end(self, patience_s):
        """Waits until all workers and servers have ended, each without an error."""
        for key in (*self.workers, *self.servers):
            self.wait_for(key, lambda word, *_: word == "left", patience_s)
        for process in self.processes.values():
            process.wait(patience_s)
        self.check()


def seconds_of_runs(events, warmup):
    """The seconds of each run after the warm-up, from the first begin to the last end; `events`: of each worker."""
    def instants(word):
        return [[at for name, at, _ in each if name == word] for each in events]
    begins = [min(run) for run in zip(*instants("begin"))]
    ends = [max(run) for run in zip(*instants("end"))]
    return [(end - begin) / 1e9 for begin, end in zip(begins, ends)][warmup:]


def record_of(op, layout, size, each, **others):
    return summarize({"op": op, "size_bytes": size, "world": layout.workers, "servers": layout.servers, "each_s": each, "limit_s": 0,
                      "verified": True, "cpu_s_per_gb": 0, **others})


def link_bytes(op, size, layout):
    """The bytes in which the goal of an op is counted: those of the busiest link at best, or of the model; 0: it is not the link."""
    if op in DENSE:
        return size
    if op not in KEYED:
        return 0
    per_value = 1
    if op.endswith("_first"):
        per_value = plans.KEY_AND_ROW if op.startswith("ps_rows") else plans.KEY_AND_FLOAT
    return round(size * per_value * layout.workers / min(layout.servers, layout.workers))


def measure_runs(cluster, arguments, layout, op, turn):
    """The record of an op with a begin and an end."""
    runs = arguments.warmup + arguments.runs
    size = MODEL_BYTES if op in DENSE else SORTED_KEYS * FLOAT_BYTES
    if op.startswith("ps_rows"):
        size = ROWS * ROW_FLOATS * FLOAT_BYTES
    records = []
    for each_size in sizes_of(arguments) or [size]:
        work = (dense_work(each_size, DENSE[op], runs, arguments.width) if op in DENSE else keyed_work(op, each_size, runs))
        with TableJob(cluster, f"{op}-{each_size}-{turn}", layout, work) as job:
            job.wait_for_end(600)
            each = seconds_of_runs([job.events(worker) for worker in job.workers], arguments.warmup)
        records.append(record_of(op, layout, each_size, each))
    return records


def sizes_of(arguments):
    return [session_jobs.parse_size(size) for size in (arguments.sizes or "").split(",") if size]


def rate_of(events):
    """Clocks of a worker in a second, from its first answer to its last clock."""
    clocks = [at for word, at, _ in events if word == "clock"]
    first = next(at for word, at, _ in events if word == "answered")
    return len(clocks) / ((clocks[-1] - first) / 1e9)


def measure_stragglers(cluster, layout, turn):
    """A record for each consistency: workers whose clocks last as long in each of them. The seconds are those of a clock."""
    records = []
    for sync in ("bsp", "ssp", "asp"):
        work = {"keys": 1024, "sync": sync, "staleness": STALENESS if sync == "ssp" else 0, "work": "paced", "rows": 16,
                "clocks": STRAGGLER_CLOCKS, **STRAGGLER}
        with TableJob(cluster, f"stragglers-{sync}-{turn}", layout, work) as job:
            job.wait_for_end(300)
            rate = statistics.mean(rate_of(job.events(worker)) for worker in job.workers)
        records.append(record_of(f"ps_stragglers_{sync}", layout, 1024 * FLOAT_BYTES, [1 / rate], clocks_per_s=rate,
                                 of_bsp=rate / records[0]["clocks_per_s"] if records else 1.0))
    return records


def clocks_within(events, begin, end):
    return sum(word == "clock" and begin <= at < end for word, at, _ in events)


def measure_frozen(cluster, layout, turn):
    """A record for SSP and one for ASP: a worker is stopped, and goes on no more."""
    records = []
    for sync in ("ssp", "asp"):
        work = {"keys": 1024, "sync": sync, "staleness": STALENESS if sync == "ssp" else 0, "work": "paced", "rows": 16, "clocks": ENDLESS,
                "ms": FROZEN_MS}
        with TableJob(cluster, f"frozen-{sync}-{turn}", layout, work) as job:
            frozen, others = job.workers[-1], job.workers[:-1]
            for worker in job.workers:
                job.wait_for(worker, lambda word, _, clock: word == "clock" and clock >= CLOCKS_BEFORE)
            begin = time.monotonic_ns()
            time.sleep(WATCH_S)
            stopped = job.stop([frozen])
            time.sleep(WATCH_S)
            end = time.monotonic_ns()
            before = [clocks_within(job.events(worker), begin, stopped) / (stopped - begin) for worker in others]
            after = [clocks_within(job.events(worker), stopped, end) / (end - stopped) for worker in others]
            # What a stopped worker has said last can be older than what it has sent.
            last = max(clock for word, _, clock in job.events(frozen) if word == "clock")
            ahead = [max(clock for word, _, clock in job.events(worker) if word == "clock") - last for worker in others]
            job.check()
        kept = statistics.mean(after) / statistics.mean(before)
        records.append(record_of(f"ps_frozen_{sync}", layout, 1024 * FLOAT_BYTES, [1 / statistics.mean(before) / 1e9], kept=kept,
                                 ahead_min=min(ahead), ahead_max=max(ahead)))
    return records


def phases_of(job, server, killed, answered, by):
    at = {word: instant for word, instant, _ in job.events(server)}
    if by == "spare":
        return {"own_start": 0.0, "joined": (at["joined"] - killed) / 1e9, "answered": (answered - at["joined"]) / 1e9}
    return {"started": (job.began[server] - killed) / 1e9, "own_start": (at["up"] - job.began[server]) / 1e9,
            "joined": (at["joined"] - at["up"]) / 1e9, "answered": (answered - at["joined"]) / 1e9}


# How a killed server comes back: its next life is started on its host, or on the next one; or a spare waits there.
COMES_BACK = {"restart": "ps_kill_server", "move": "ps_kill_server_moved", "spare": "ps_kill_server_spare"}


def measure_kills(cluster, arguments, layout, turn, by):
    """The server is killed in each run, and comes back as COMES_BACK says.

    The seconds last from the kill until all workers have an answer to a pull that has waited for it, less the program's own start.
    """
    keys = MODEL_BYTES // FLOAT_BYTES
    work = {"keys": keys, "sync": "bsp", "work": "paced", "rows": 16, "clocks": ENDLESS, "ms": 10, "snapshot_every": SNAPSHOT_EVERY}
    each, phases, host, server = [], [], layout.host_of_server(0), "server0"
    runs = arguments.warmup + arguments.runs
    with TableJob(cluster, f"kills-{turn}-{by}", layout, work) as job:
        after = 2 * CLOCKS_BEFORE
        for run in range(runs):
            host = host if by == "restart" else (host + 1) % layout.hosts
            if by == "spare":
                # It waits long before the clocks below are made.
                job.start(f"spare{run}", host, spares=runs)
                job.wait_for(f"spare{run}", lambda word, *_: word == "up")
            for worker in job.workers:
                job.wait_for(worker, lambda word, _, clock: word == "answered" and clock >= after)
            killed = job.kill([server])
            if by == "spare":
                server = f"spare{run}"
            else:
                job.start(server, host)
            up = job.wait_for(server, lambda word, *_: word == "joined")[1]
            # An answer of the next life comes after it has joined.
            ends = [job.wait_for(worker, lambda word, at, _: word == "answered" and at > up) for worker in job.workers]
            answered = max(at for _, at, _ in ends)
            phase = phases_of(job, server, killed, answered, by)
            each.append((answered - killed) / 1e9 - phase["own_start"])
            phases.append(phase)
            after = max(clock for _, _, clock in ends) + 2 * CLOCKS_BEFORE
    each, phases = each[arguments.warmup:], phases[arguments.warmup:]
    medians = {name: statistics.median(phase[name] for phase in phases) for name in phases[0]}
    return record_of(COMES_BACK[by], layout, MODEL_BYTES, each, phases_s=medians)


def measure_snapshots(cluster, layout, turn):
    """Records without and with snapshots of the whole model every few clocks; the seconds are those of a clock."""
    records = []
    for every in (0, SNAPSHOT_EVERY):
        work = {"keys": MODEL_BYTES // FLOAT_BYTES, "sync": "bsp", "work": "paced", "rows": 4096, "clocks": SNAPSHOT_CLOCKS,
                "ms": SNAPSHOT_MS, "snapshot_every": every}
        with TableJob(cluster, f"snapshots-{every}-{turn}", layout, work) as job:
            job.wait_for_end(300)
            rate = statistics.mean(rate_of(job.events(worker)) for worker in job.workers)
        records.append(record_of(f"ps_snapshots_{every}", layout, MODEL_BYTES, [1 / rate],
                                 overhead=records[0]["clocks_per_s"] / rate - 1 if records else 0.0, clocks_per_s=rate))
    return records


def measure_flat(cluster, arguments, layout, turn):
    """The mean of a clock, and the memory of all daemons, servers and workers after each tenth of the clocks."""
    samples = session_jobs.SAMPLES
    clocks = (arguments.calls or FLAT_CLOCKS) // samples * samples
    if clocks == 0:
        raise BadInput(f"ps_flat needs --calls of {samples} or more")
    work = {"keys": FLAT_KEYS, "sync": "bsp", "work": "paced", "rows": FLAT_KEYS, "clocks": clocks, "snapshot_every": SNAPSHOT_EVERY}
    with TableJob(cluster, f"flat-{turn}", layout, work) as job:
        # The first question of a tool takes memory of the directory that stays.
        session_jobs.shard_status(cluster, arguments)
        memory = {}
        for sample in range(1, samples + 1):
            # After the last clock the workers leave.
            clock = sample * clocks // samples - (clocks // 100 + 1 if sample == samples else 0)
            for worker in job.workers:
                job.wait_for(worker, lambda word, _, number: word == "clock" and number >= clock)
            pids = {name: [pid] for name, pid in cluster.named_pids().items()}
            pids["servers"] = [job.processes[key].pid for key in job.servers]
            pids["workers"] = [job.processes[key].pid for key in job.workers]
            for name, those in pids.items():
                memory.setdefault(name, []).append(max(map(session_jobs.own_bytes, those)))
            if sample == samples - 1:
                running = session_jobs.shard_status(cluster, arguments)
        job.wait_for_end(120)
        rate = statistics.mean(rate_of(job.events(worker)) for worker in job.workers)
    record = record_of("ps_flat", layout, FLAT_KEYS * FLOAT_BYTES, [1 / rate], clocks=clocks, memory_bytes=memory, while_it_runs=running,
                       at_the_end=session_jobs.shard_status(cluster, arguments))
    return dict(record, flat=all(map(session_jobs.is_flat, memory.values())) and running["tombstones"] == 0)


def measure_op(cluster, arguments, layout, op, turn):
    if op == "ps_stragglers":
        return measure_stragglers(cluster, layout, turn)
    if op == "ps_frozen":
        return measure_frozen(cluster, layout, turn)
    if op == "ps_kill_server":
        return [measure_kills(cluster, arguments, layout, turn, by) for by in COMES_BACK]
    if op == "ps_snapshots":
        return measure_snapshots(cluster, layout, turn)
    if op == "ps_flat":
        return [measure_flat(cluster, arguments, layout, turn)]
    return measure_runs(cluster, arguments, layout, op, turn)


def measure(hosts, arguments):
    """Records of all ops, --turns times one after the other."""
    layout = plans.layout_of(arguments.nodes, arguments.servers, arguments.workers)
    records = []
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder, Cluster(hosts, arguments, folder) as cluster:
        cluster.wait_until_it_decides()
        for turn in range(arguments.turns):
            for op in arguments.ops.split(","):
                records += measure_op(cluster, arguments, layout, op, turn)
    merged = plans.merge_turns([dict(record, peer="tables", algorithm="tables") for record in records])
    return programs.with_limits(hosts, merged, lambda record: link_bytes(record["op"], record["size_bytes"], layout), arguments.warmup,
                                arguments.runs)


def lines_of(record):
    """What the table of benchmarks/run has below the line of a record."""
    if "of_bsp" in record:
        yield f"    {record['clocks_per_s']:.3f} clocks/s, {record['of_bsp']:.3f} x those of BSP"
    if "ahead_min" in record:
        yield (f"    the others keep {record['kept']:.3f} of their rate, and are {record['ahead_min']} to {record['ahead_max']} clocks "
               "ahead of the frozen one at the end")
    if "overhead" in record:
        yield f"    {record['overhead'] * 100:+.2f} % of the time without snapshots"


def add_arguments(parser):
    parser.add_argument("--servers", type=int, default=1, help="servers of ops ps_..., at the first nodes (1)")
    parser.add_argument("--workers", type=int, default=0, help="workers of ops ps_... (one at each node without a server)")
    parser.add_argument("--width", type=int, default=1, help="elements of a row of ps_dense_clock and ps_dense_clock_own (1)")
