"""The ranks of `phalanx bench` at the nodes of a cluster, and their records."""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = str(ROOT / "bazel-bin/src/cli/phalanx")


def arguments_of(sizes, runs, warmup, calls=0):
    """The arguments of benchmarks/run for ops without faults, one shard, and one rank at each node."""
    absent = ("stagger", "kill", "stop", "kill_member", "dtype", "reduce_op", "order", "subset", "absent", "slow", "beside", "logs")
    off = ("with_put", "waiting", "spare_copies", "trace", "no_limit")
    return argparse.Namespace(
        **dict.fromkeys(absent), **dict.fromkeys(off, False), sizes=sizes, runs=runs, warmup=warmup, calls=calls, clients=1, shards=1,
        node_flags="", binary=BINARY)


def start_ranks(cluster, arguments, op, session, output, flags):
    """Starts one process of `phalanx bench` per rank; rank 0 writes its records to `output`."""
    hosts = cluster.hosts
    world = hosts.count * arguments.clients
    flags = ["bench", op, "--world", str(world), "--session", session] + flags
    ranks = []
    for rank in range(world):
        host = rank % hosts.count  # neighbours are at different nodes
        own = ["--rank", str(rank), "--address", f"unix:{cluster.socket(host)}", "--raw-host", hosts.address(host),
               "--secret-file", str(cluster.secret), "--directory", ",".join(cluster.shards)]
        if rank == 0:
            own += ["--cpu-pids", ",".join(map(str, cluster.pids())), "--json-file", str(output)]
        ranks.append(hosts.popen(host, [arguments.binary] + flags + own, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    return ranks


@contextlib.contextmanager
def going_on_beside(cluster, arguments):
    """Repeats the operation of --beside until the block ends."""
    if not arguments.beside:
        yield
        return
    op, _, size = arguments.beside.partition(":")
    ranks = start_ranks(cluster, arguments, op, "beside", cluster.folder / "beside.json",
                        ["--sizes", size, "--runs", "1000000", "--warmup", "0", "--no-limit"])
    try:
        yield
        if any(rank.poll() is not None for rank in ranks):
            raise SystemExit(f"--beside {arguments.beside} ended: " + "".join(
                rank.stderr.read() for rank in ranks if rank.poll() is not None))
    finally:
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.communicate()


def run_op(cluster, arguments, op, session):
    """Runs all ranks of one op and returns rank 0's records."""
    output = cluster.folder / f"{session}.json"
    flags = ["--sizes", arguments.sizes, "--runs", str(arguments.runs), "--warmup", str(arguments.warmup)]
    for name in ("stagger", "kill", "stop", "kill_member", "dtype", "reduce_op", "order", "subset", "absent"):
        if getattr(arguments, name):
            flags += ["--op" if name == "reduce_op" else "--" + name.replace("_", "-"), str(getattr(arguments, name))]
    if arguments.calls and (op.startswith("group_") or op == "job_allreduce"):
        flags += ["--calls", str(arguments.calls)]
    if arguments.slow or arguments.no_limit:
        flags.append("--no-limit")  # with --slow the bare links would count as bytes of the object
    for name in ("with_put", "waiting", "spare_copies", "trace"):
        if getattr(arguments, name):
            flags.append("--" + name.replace("_", "-"))
    with going_on_beside(cluster, arguments):
        ranks = start_ranks(cluster, arguments, op, session, output, flags)
        disturbed = arguments.kill or arguments.stop or arguments.kill_member
        failed = False
        for rank, process in enumerate(ranks):
            # Rank 0 ends when all ranks except the victims have reported their results.
            victim = disturbed and rank != 0
            if victim and arguments.stop:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=2)
                process.kill()
            _, error = process.communicate()
            if process.returncode != 0 and not victim:
                print(f"rank {rank} of {op} failed ({process.returncode}): {error.strip()}", file=sys.stderr)
                failed = True
    if failed:
        raise SystemExit(1)
    return json.loads(output.read_text())


def merge_runs(runs):
    """Merges records of the same op and size into one: --kill has new daemons for each run, --turns new ranks."""
    merged = dict(runs[0])
    each = [seconds for run in runs for seconds in run["each_s"]]
    merged.update(runs=len(each), each_s=each, median_s=statistics.median(each), min_s=min(each), max_s=max(each),
                  verified=all(run["verified"] for run in runs),
                  cpu_s_per_gb=statistics.median(run["cpu_s_per_gb"] for run in runs))
    for limit in ("limit_s", "shape_limit_s"):
        merged[limit] = statistics.median(run.get(limit, 0) for run in runs)
    if any("killed" in run for run in runs):
        merged["killed"] = sum(run.get("killed", 0) for run in runs)
    merged["each_ranks_s"] = [ranks for run in runs for ranks in run.get("each_ranks_s", [])]
    if "bytes_sent_twice" in merged:
        merged["bytes_sent_twice"] = max(run["bytes_sent_twice"] for run in runs)
    return merged


def merge_turns(records):
    """Merges the records of several turns by op and size, in the order of the first turn."""
    found = {}
    for record in records:
        found.setdefault((record["op"], record["size_bytes"]), []).append(record)
    return [merge_runs(each) if len(each) > 1 else each[0] for each in found.values()]
