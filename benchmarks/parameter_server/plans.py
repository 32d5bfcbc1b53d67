"""The work of programs for ps-lite: sizes, plans for peer_programs/ps_lite.cc, and records of what it has measured."""

import dataclasses

from benchmarks.records import BadInput, summarize


@dataclasses.dataclass(frozen=True)
class Work:
    """The usual size and number of calls of an op, and the ways in which the program can do it."""

    size: int
    calls: int
    algorithms: tuple = ("default",)
    # The bytes that the busiest link carries one way, at best; 0: it is not the link that limits.
    link_bytes: object = lambda size, calls, layout: 0


KEY_BYTES = 8
FLOAT_BYTES = 4
ROW_FLOATS = 16
# How often the bytes of a key or a row's values are sent with each of them.
KEY_AND_FLOAT = (KEY_BYTES + FLOAT_BYTES) / FLOAT_BYTES
KEY_AND_ROW = (KEY_BYTES + ROW_FLOATS * FLOAT_BYTES) / (ROW_FLOATS * FLOAT_BYTES)


def _all_values(size, calls, layout):
    """Each worker has `calls` values of each server, pushes them and pulls them at the same time."""
    return size * calls * max(layout.workers, layout.servers)


def _with_keys(factor):
    return lambda size, calls, layout: size * factor * calls * layout.workers / min(layout.servers, layout.workers)


WORKS = {
    "ps_benchmark": Work(1_024_000, 40, link_bytes=_all_values),
    "ps_float": Work(FLOAT_BYTES, 200),
    "ps_small_pushes": Work(1024, 10_000),
    "ps_sorted_push": Work(40_000_000, 1, link_bytes=_with_keys(KEY_AND_FLOAT)),
    "ps_sorted_pull": Work(40_000_000, 1, link_bytes=_with_keys(KEY_AND_FLOAT)),
    "ps_rows_push": Work(6_400_000, 1, link_bytes=_with_keys(KEY_AND_ROW)),
    "ps_rows_pull": Work(6_400_000, 1, link_bytes=_with_keys(KEY_AND_ROW)),
    # S/B: what the goals of a clock are counted in.
    "ps_dense_clock": Work(32 << 20, 1, ("default", "keyed"), link_bytes=lambda size, calls, layout: size),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which host has which process: the servers at the first hosts, the workers at those that follow."""

    servers: int
    workers: int
    hosts: int

    def host_of_server(self, rank):
        return rank % self.hosts

    def host_of_worker(self, rank):
        return (self.servers + rank) % self.hosts


def layout_of(nodes, servers, workers):
    """`workers` 0: one at each host without a server, at least one."""
    if servers < 1 or workers < 0:
        raise BadInput("--servers is at least 1, --workers at least 0")
    return Layout(servers, workers or max(1, nodes - servers), nodes)


def plan(ops, sizes, calls, warmup, runs):
    """Lines for the program: each op, with each of its algorithms. Empty `sizes`, and 0 calls: the op's own."""
    return [f"{op} {algorithm} {size} {calls or WORKS[op].calls} {warmup} {runs}"
            for op in ops for size in sizes or [WORKS[op].size] for algorithm in WORKS[op].algorithms]


def records_of(outputs, layout):
    """Records of what each worker has written: a run lasts from the first begin to the last end."""
    workers = [[line.split() for line in output.splitlines()] for output in outputs]
    if len({len(lines) for lines in workers}) != 1:
        raise SystemExit("the workers have measured different numbers of steps")
    records = []
    for lines in zip(*workers):
        op, algorithm, size, calls = lines[0][0], lines[0][1], int(lines[0][2]), int(lines[0][3])
        instants = [[int(instant) for instant in line[4:]] for line in lines]
        begins = [min(run) for run in zip(*(each[0::2] for each in instants))]
        ends = [max(run) for run in zip(*(each[1::2] for each in instants))]
        records.append({
            "op": op, "algorithm": algorithm, "size_bytes": size, "calls": calls, "world": layout.workers, "servers": layout.servers,
            # A wrong value ends the program with an error.
            "verified": True, "cpu_s_per_gb": 0, "each_s": [(end - begin) / 1e9 for begin, end in zip(begins, ends)]})
    return records


def merge_turns(records):
    """Merges the records of several turns by peer, op, size and algorithm."""
    merged = {}
    for record in records:
        key = tuple(record[name] for name in ("peer", "op", "size_bytes", "algorithm"))
        found = merged.setdefault(key, dict(record, each_s=[]))
        found["each_s"] = found["each_s"] + record["each_s"]
    return [summarize(record) for record in merged.values()]


def link_bytes(record, layout):
    work = WORKS.get(record["op"])
    return round(work.link_bytes(record["size_bytes"], record["calls"], layout)) if work else 0


def with_rates(records):
    """Adds what an op is usually counted in, and how it compares with the best of ps-lite."""
    best = {}
    for record in records:
        if record["peer"] == "ps-lite":
            key = record["op"], record["size_bytes"]
            best[key] = min(best.get(key, record["median_s"]), record["median_s"])
    rated = []
    for record in records:
        record = dict(record)
        calls = record.get("calls", 1)
        if record["op"] == "ps_benchmark":
            # One direction counts, of one worker, as test_benchmark prints it.
            values = calls * record["servers"]
            record["goodput_gbps"] = 8e-9 * record["size_bytes"] * values / record["median_s"]
        elif calls > 1:
            record["call_us"] = record["median_s"] / calls * 1e6
        # Programs for ps-lite have one work for keys that are new and for others, and no update but their own.
        theirs = best.get((record["op"].removesuffix("_own").removesuffix("_first"), record["size_bytes"]))
        if theirs and record["peer"] != "ps-lite":
            record["of_ps_lite"] = record["median_s"] / theirs
        rated.append(record)
    return rated


def lines_of(record):
    """What is printed behind a record."""
    words = [record["algorithm"]]
    if "goodput_gbps" in record:
        words.append(f"{record['goodput_gbps']:.3f} Gbit/s goodput")
    if "call_us" in record:
        words.append(f"{record['call_us']:.1f} us a call")
    if "of_ps_lite" in record:
        words.append(f"{record['of_ps_lite']:.3f} x the time of ps-lite")
    return ", ".join(words)
