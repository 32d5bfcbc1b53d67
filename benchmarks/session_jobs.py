"""Sessions whose ranks, nodes or shard die, or which make very many calls: the ops job_kill_rank, job_kill_node, job_stop_node,
job_kill_shard and job_rounds of benchmarks/run.

Each rank is a process of session_rank, which appends lines to a file of events. This process starts it, kills it, and starts its next
life at once, as `phalanx launch` does; so it knows the instants of both.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

from benchmarks.clusters import Cluster
from benchmarks.event_jobs import PATIENCE_S, EventJob
from benchmarks.records import BadInput, parse_size, summarize

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "bazel-bin/benchmarks/session_rank"

# What is measured with faults.
FAULTS = ("job_kill_rank", "job_kill_node", "job_stop_node", "job_kill_shard")
OPS = (*FAULTS, "job_rounds")

# Calls between two checkpoints, of ranks that are killed and of those that make many calls.
CALLS_OF_A_VERSION = 20
ROUNDS_OF_A_VERSION = 100
DEFAULT_ROUNDS = 10_000
# Of the memory of job_rounds. In the first samples buffers and tables grow to their sizes.
SAMPLES = 10
WARM_SAMPLES = 4
SLACK_BYTES = 256 << 10
# A kill comes so many calls after the last recovery, and within this time after that call.
CALLS_BETWEEN_KILLS = CALLS_OF_A_VERSION + 7
KILL_WITHIN_S = 0.03
# Ranks that are killed make calls until then.
ENDLESS = 1 << 40
# How long a killed shard is away.
SHARD_AWAY_S = 1


def require_program():
    if not os.access(PROGRAM, os.X_OK):
        raise BadInput(f"{PROGRAM} is not there: scripts/bazel build //benchmarks:session_rank")


class SessionJob(EventJob):
    """The ranks of one session, one at each host unless moved, from start to stop."""

    def __init__(self, cluster, name, work):
        """`work`: the arguments of session_rank after the file of events."""
        super().__init__(cluster, name)
        self.work = work
        self.world = cluster.hosts.count * cluster.arguments.clients

    def __enter__(self):
        for rank in range(self.world):
            self.start(rank, rank % self.cluster.hosts.count)
        return self

    def start(self, rank, host):
        place = {"PHALANX_ADDRESS": f"unix:{self.cluster.socket(host)}", "PHALANX_JOB": self.name, "PHALANX_TASK": f"worker{rank}",
                 "PHALANX_WORLD": str(self.world)}
        self.start_process(rank, host, [str(PROGRAM), str(self.path(rank)), *map(str, self.work)], place)

    def title(self, key):
        return f"rank {key} of {self.name}"


def _has_call(number):
    return lambda word, _, call: word in ("made", "repeated") and call >= number


def measure_recovery(job, victims, hosts, end_node=None, end=None):
    """Ends the victims, starts them on these hosts, and returns the seconds of each phase until all ranks have the next result.

    `end`: how ranks are ended, unless they are killed. `end_node`: a node is ended before, at the instant that it returns.
    """
    end = end or job.kill
    ended = end(victims) if end_node is None else min(end_node(), end(victims))
    for rank, host in zip(victims, hosts):
        job.start(rank, host)
    ends, call = _wait_for_next_result(job, victims)
    # The slowest start counts, since all of the victims are needed.
    ups = [(job.wait_for(rank, lambda word, *_: word == "up")[1], rank) for rank in victims]
    own_start = max(up - job.began[rank] for up, rank in ups)
    last = max(ups)[1]
    instant = _instants(job, last)
    phases = {"dismantled": job.began[last] - ended, "own_start": own_start, "joined": instant["joined"] - instant["up"],
              "loaded": instant["loaded"] - instant["joined"], "result": max(ends) - instant["loaded"]}
    phases = {name: nanos / 1e9 for name, nanos in phases.items()}
    return (max(ends) - ended - own_start) / 1e9, phases, call


def measure_shard_recovery(job, victim, host, cluster):
    """The same for a shard and a rank that are killed, from the instant at which the shard is started again. The next life waits for it."""
    cluster.kill_shard()
    job.kill([victim])
    job.start(victim, host)
    job.wait_for(victim, lambda word, *_: word == "up")
    time.sleep(SHARD_AWAY_S)
    if any(word == "joined" for word, *_ in job.events(victim)):
        raise SystemExit(f"rank {victim} of {job.name} has joined without its shard")
    back = cluster.restart_shard()
    ends, call = _wait_for_next_result(job, [victim])
    instant = _instants(job, victim)
    phases = {"joined": instant["joined"] - back, "loaded": instant["loaded"] - instant["joined"],
              "result": max(ends) - instant["loaded"]}
    return (max(ends) - back) / 1e9, {name: nanos / 1e9 for name, nanos in phases.items()}, call


def _wait_for_next_result(job, victims):
    """Returns when each rank has the result of the first call in which all victims take part, and its number."""
    first = [job.wait_for(rank, lambda word, *_: word == "made") for rank in victims]
    # The others have waited in this call: without the new lives it could not end.
    call = max(number for _, _, number in first)
    return [job.wait_for(rank, _has_call(call))[1] for rank in range(job.world)], call


def _instants(job, rank):
    return {word: at for word, at, _ in job.events(rank) if word in ("up", "joined", "loaded")}


def _record(op, world, size, each, phases, model):
    record = summarize({"op": op, "size_bytes": size, "world": world, "each_s": each, "limit_s": 0, "verified": True,
                        "cpu_s_per_gb": 0, "model_bytes": model})
    record["phases_s"] = {name: statistics.median(phase[name] for phase in phases) for name in phases[0]}
    return record


def measure_rank_kills(cluster, arguments, op, size, work, rng):
    """Kills a rank in each run, with job_kill_shard the first shard as well."""
    each, phases, after = [], [], CALLS_BETWEEN_KILLS
    with SessionJob(cluster, f"kill-{size}", work) as job:
        for run in range(arguments.warmup + arguments.runs):
            victim = run % job.world
            host = victim % cluster.hosts.count
            for rank in range(job.world):
                job.wait_for(rank, _has_call(after))
            time.sleep(rng.uniform(0, KILL_WITHIN_S))
            if op == "job_kill_shard":
                seconds, phase, call = measure_shard_recovery(job, victim, host, cluster)
            else:
                seconds, phase, call = measure_recovery(job, [victim], [host])
            after = call + CALLS_BETWEEN_KILLS
            if run >= arguments.warmup:
                each.append(seconds)
                phases.append(phase)
    return each, phases


def measure_node_end(cluster, op, run, size, work, rng):
    """Kills or stops a node and its ranks, and starts these at the node before it, where no rank is whose checkpoint they would take first.

    Not on the first host, which has the directory.
    """
    hosts = cluster.hosts.count
    host = 1 + run % (hosts - 1)
    with SessionJob(cluster, f"kill-{size}", work) as job:
        for rank in range(job.world):
            job.wait_for(rank, _has_call(CALLS_BETWEEN_KILLS))
        time.sleep(rng.uniform(0, KILL_WITHIN_S))
        victims = [rank for rank in range(job.world) if rank % hosts == host]
        stops = op == "job_stop_node"
        seconds, phases, _ = measure_recovery(job, victims, [host - 1] * len(victims),
                                              lambda: (cluster.stop_node if stops else cluster.kill_node)(host),
                                              job.stop if stops else job.kill)
    return seconds, phases


def measure_faults(hosts, arguments, op):
    """Records of FAULTS: from the fault to the next result on all ranks, less the program's own start."""
    rng = random.Random(1)
    model = parse_size(arguments.model)
    records = []
    for size in map(parse_size, arguments.sizes.split(",")):
        work = [size, model, ENDLESS, CALLS_OF_A_VERSION, 1]
        each, phases = [], []
        of_node = op in ("job_kill_node", "job_stop_node")
        # Such a node does not come back, so each run has a cluster of its own.
        for run in range(arguments.runs if of_node else 1):
            with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder, Cluster(hosts, arguments, folder) as cluster:
                cluster.wait_until_it_decides()
                if of_node:
                    seconds, phase = measure_node_end(cluster, op, run, size, work, rng)
                    each.append(seconds)
                    phases.append(phase)
                else:
                    each, phases = measure_rank_kills(cluster, arguments, op, size, work, rng)
        records.append(_record(op, hosts.count * arguments.clients, size, each, phases, model))
    return records


def own_bytes(pid):
    """The memory that a process does not share; 0 if it has ended."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def is_flat(samples):
    """Whether memory did not grow after the first samples."""
    return max(samples[WARM_SAMPLES:]) <= max(samples[:WARM_SAMPLES]) + SLACK_BYTES


def shard_status(cluster, arguments):
    """Objects and tombstones of the first shard."""
    command = [arguments.binary, "status", "--json", "--directory", ",".join(cluster.shards), "--secret-file", str(cluster.secret)]
    asked = cluster.hosts.popen(0, command, stdout=subprocess.PIPE, text=True)
    (shard, *_) = json.loads(asked.communicate()[0])["shards"]
    return {"objects": shard["objects"], "tombstones": shard["tombstones"]}


def measure_rounds(cluster, arguments):
    """Records of job_rounds: the mean of a call, and the memory of all daemons and ranks after each tenth of the calls."""
    rounds = (arguments.calls or DEFAULT_ROUNDS) // (SAMPLES * ROUNDS_OF_A_VERSION) * SAMPLES * ROUNDS_OF_A_VERSION
    if rounds == 0:
        raise BadInput(f"job_rounds needs --calls of {SAMPLES * ROUNDS_OF_A_VERSION} or more")
    model = parse_size(arguments.model)
    records = []
    for size in map(parse_size, arguments.sizes.split(",")):
        with SessionJob(cluster, f"rounds-{size}", [size, model, rounds, ROUNDS_OF_A_VERSION, 0]) as job:
            # The first question of a tool takes memory of the directory that stays.
            shard_status(cluster, arguments)
            memory = {}
            for sample in range(1, SAMPLES + 1):
                versions = sample * rounds // SAMPLES // ROUNDS_OF_A_VERSION
                for rank in range(job.world):
                    # After the last checkpoint the ranks leave.
                    job.wait_for(rank, lambda word, _, version: word == "saved" and version >= versions - (sample == SAMPLES))
                pids = {name: [pid] for name, pid in cluster.named_pids().items()}
                pids["ranks"] = [process.pid for process in job.processes.values()]
                for name, those in pids.items():
                    memory.setdefault(name, []).append(max(map(own_bytes, those)))
                if sample == SAMPLES - 1:
                    running = shard_status(cluster, arguments)
            ends = [job.wait_for(rank, lambda word, _, version: word == "saved" and version >= rounds // ROUNDS_OF_A_VERSION)
                    for rank in range(job.world)]
            begins = [job.wait_for(rank, lambda word, *_: word == "loaded") for rank in range(job.world)]
            for process in job.processes.values():
                process.wait(PATIENCE_S)
            job.check()
        seconds = (max(at for _, at, _ in ends) - min(at for _, at, _ in begins)) / 1e9 / rounds
        record = _record("job_rounds", job.world, size, [seconds], [{}], model)
        record.update(calls=rounds, memory_bytes=memory, while_it_runs=running, at_the_end=shard_status(cluster, arguments))
        record["flat"] = all(map(is_flat, memory.values())) and running["tombstones"] == 0
        records.append(record)
    return records


def lines_of(record):
    """What the table of benchmarks/run has below the line of a record."""
    if record.get("phases_s"):
        yield "    medians: " + ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in record["phases_s"].items())
    if "memory_bytes" in record:
        for name, samples in record["memory_bytes"].items():
            yield f"    {name:10} KiB " + " ".join(f"{each >> 10:6}" for each in samples) + ("" if is_flat(samples) else "  GROWS")
        for when, shard in (("after nine tenths", record["while_it_runs"]), ("at the end", record["at_the_end"])):
            yield f"    {when} {shard['objects']} objects and {shard['tombstones']} tombstones"


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument("--model", metavar="SIZE", default=None,
                        help="bytes of a checkpoint of ops with faults (32MiB), and job_rounds (1KiB)")
