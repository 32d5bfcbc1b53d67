"""The work of each peer in `benchmarks/peers`: its algorithms, the plans for its program, and the choice of the best.

A plan is a list of steps (one line each, as peer_programs/trial.h reads them). First a scouting plan tries every algorithm a
few times and gives up on slow ones; then a measuring plan runs the default and, for each op and size, the finalists.
"""

import dataclasses

from benchmarks.records import BadInput, format_size, summarize

# With "group_" the op is called again and again within a run, as in benchmarks/run.
OPS = ("broadcast", "reduce", "allreduce", "gather", "allgather", "group_broadcast", "group_reduce", "group_allreduce",
       "group_barrier")

# Those of benchmarks/run that can be measured beside them.
OURS = ("broadcast", "reduce", "allreduce", "gather", "group_broadcast", "group_reduce", "group_allreduce", "group_barrier",
        "job_allreduce")

# Ops for which bare sockets have a shape.
SHAPES = ("broadcast", "reduce", "gather", "group_broadcast", "group_reduce")

# The default number of calls in a run of an op with "group_": the same as in src/cli/bench/group_operations.cc.
BYTES_OF_A_RUN = 32 << 20
MAX_CALLS = 1000

DEFAULT = "default"

SCOUT_WARMUP = 1
# A run that is slower than the best median so far by this factor ends the scouting of an algorithm.
PATIENCE = 2
# The number of algorithms that are measured after scouting: few runs cannot separate algorithms of similar speed.
FINALISTS = 3


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One way in which a peer can do an op."""

    name: str
    settings: str = "-"
    # The size of its segments; the algorithm is skipped for sizes that fit into one segment.
    segment: int = 0


SEGMENTS = tuple(kib << 10 for kib in (2, 8, 32, 128, 512))


def _open_mpi(op, number, name, segments=(), **others):
    prefix = f"coll_tuned_{op}_algorithm"
    settings = [f"{prefix}={number}"] + [f"coll_tuned_{op}_{key}={value}" for key, value in others.items()]
    yield Algorithm(name, ",".join(settings))
    for segment in segments:
        yield Algorithm(f"{name}/{format_size(segment).replace(' ', '')}",
                        ",".join(settings + [f"{prefix}_segmentsize={segment}"]), segment)


def _with_groups(algorithms):
    """Adds the ops of groups, which have the same algorithms."""
    return {op: algorithms.get(op.removeprefix("group_"), []) for op in OPS}


def _open_mpi_algorithms():
    """The algorithms of its component "tuned", numbered as by `ompi_info --param coll tuned --level 9`. The ones that are often
    best come first, so that scouting gives up early on the others."""
    radixes = (2, 4, 8)
    return {
        "broadcast": [
            *_open_mpi("bcast", 3, "pipeline", SEGMENTS),
            *_open_mpi("bcast", 2, "chain", SEGMENTS),
            *_open_mpi("bcast", 4, "split_binary", SEGMENTS),
            *_open_mpi("bcast", 5, "binary", SEGMENTS),
            *_open_mpi("bcast", 6, "binomial", SEGMENTS),
            *(each for radix in radixes
              for each in _open_mpi("bcast", 7, f"knomial{radix}", SEGMENTS, algorithm_knomial_radix=radix)),
            *_open_mpi("bcast", 8, "scatter_allgather"),
            *_open_mpi("bcast", 9, "scatter_allgather_ring"),
            *_open_mpi("bcast", 1, "linear"),
        ],
        "reduce": [
            *_open_mpi("reduce", 3, "pipeline", SEGMENTS),
            *_open_mpi("reduce", 2, "chain", SEGMENTS),
            *_open_mpi("reduce", 4, "binary", SEGMENTS),
            *_open_mpi("reduce", 5, "binomial", SEGMENTS),
            *_open_mpi("reduce", 7, "rabenseifner"),
            *_open_mpi("reduce", 1, "linear"),
        ],
        "allreduce": [
            *_open_mpi("allreduce", 1, "linear"),
            *_open_mpi("allreduce", 2, "nonoverlapping"),
            *_open_mpi("allreduce", 3, "recursive_doubling"),
            *_open_mpi("allreduce", 4, "ring"),
            *_open_mpi("allreduce", 5, "segmented_ring", SEGMENTS),
            *_open_mpi("allreduce", 6, "rabenseifner"),
        ],
        "gather": [
            *_open_mpi("gather", 1, "linear"),
            *_open_mpi("gather", 2, "binomial"),
            *_open_mpi("gather", 3, "linear_sync", SEGMENTS),
        ],
        "allgather": [
            *_open_mpi("allgather", 1, "linear"),
            *_open_mpi("allgather", 2, "bruck"),
            *_open_mpi("allgather", 3, "recursive_doubling"),
            *_open_mpi("allgather", 4, "ring"),
        ],
        "barrier": [
            *_open_mpi("barrier", 1, "linear"),
            *_open_mpi("barrier", 2, "double_ring"),
            *_open_mpi("barrier", 3, "recursive_doubling"),
            *_open_mpi("barrier", 4, "bruck"),
            *_open_mpi("barrier", 6, "tree"),
        ],
    }


ALGORITHMS = {
    "openmpi": _with_groups(_open_mpi_algorithms()),
    "gloo": _with_groups({
        "broadcast": [Algorithm("one_to_all")],
        "reduce": [],
        "allreduce": [Algorithm("bcube"), Algorithm("ring_chunked"), Algorithm("halving_doubling")],
        "gather": [],
        "allgather": [Algorithm("ring")],
    }),
    # No others: it chooses between a tree and a ring by the number of elements.
    "rabit": {"broadcast": [], "allreduce": [], "group_broadcast": [], "group_allreduce": [], "group_barrier": []},
    # No groups. Its object store has one way to move an object; these are the ways in which tasks can use it.
    "ray": {
        "broadcast": [Algorithm("waves")],
        "reduce": [Algorithm("tree")],
        "allreduce": [Algorithm("tree"), Algorithm("scatter")],
        "gather": [],
        "allgather": [],
    },
}


def parse_names(text, known, what):
    names = text.split(",")
    for name in names:
        if name not in known:
            raise BadInput(f"unknown {what} {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(names))


def check_ops(peers, ops):
    for peer in peers:
        for op in ops:
            if op not in ALGORITHMS[peer]:
                raise BadInput(f"{peer} has no {op}")


def candidates(peer, op, size):
    return [algorithm for algorithm in ALGORITHMS[peer][op] if algorithm.segment < size or not algorithm.segment]


def sizes_of(op, sizes):
    """A barrier has no size."""
    return [0] if op == "group_barrier" else sizes


def calls_of(op, size, calls):
    """The number of calls in a run of the op; `calls` is the user's wish, or 0."""
    if not op.startswith("group_"):
        return 1
    return calls or max(1, min(MAX_CALLS, BYTES_OF_A_RUN // max(size, 1)))


def _line(op, algorithm, size, warmup, runs, calls=0, patience=0):
    return f"{op} {algorithm.name} {size} {calls_of(op, size, calls)} {warmup} {runs} {patience} {algorithm.settings}"


def limits_plan(ops, sizes, warmup, runs, calls=0):
    """The plan of the bare sockets: one pair of ranks, and the shape of each op."""
    shapes = ["pair"] + [op for op in ops if op in SHAPES]
    return [_line(op, Algorithm("bare"), size, warmup, runs, calls) for op in shapes for size in sizes]


def scouting_plan(peer, ops, sizes, runs, calls=0):
    return [_line(op, algorithm, size, SCOUT_WARMUP, runs, calls, PATIENCE)
            for op in ops for size in sizes_of(op, sizes) for algorithm in candidates(peer, op, size)]


def finalists(scouted):
    """Returns {(op, size): names} with the smallest minima among summarized records whose bytes were right.

    The minimum, because a disturbance only makes a run slower, and the median of three runs can be a disturbed one.
    """
    names = {}
    for record in sorted(scouted, key=lambda record: record["min_s"]):
        names.setdefault((record["op"], record["size_bytes"]), [])
        if record["verified"]:
            names[record["op"], record["size_bytes"]].append(record["algorithm"])
    return {key: each[:FINALISTS] for key, each in names.items()}


def measuring_plan(peer, ops, sizes, chosen, warmup, runs, calls=0):
    """The measuring plan; `chosen` is the result of finalists()."""
    lines = []
    for op in ops:
        for size in sizes_of(op, sizes):
            lines.append(_line(op, Algorithm(DEFAULT), size, warmup, runs, calls))
            lines += [_line(op, algorithm, size, warmup, runs, calls) for algorithm in candidates(peer, op, size)
                      if algorithm.name in chosen.get((op, size), ())]
    return lines


def merge_turns(measured):
    """Merges the records of several turns by op, size and algorithm."""
    merged = {}
    for record in measured:
        found = merged.setdefault((record["op"], record["size_bytes"], record["algorithm"]), dict(record, each_s=[]))
        found["each_s"] = found["each_s"] + record["each_s"]
        found["verified"] = found["verified"] and record["verified"]
    return [summarize(record) for record in merged.values()]


def choose(measured):
    """Returns, for each op and size, the record of the default and of the best other algorithm, with the key "choice"."""
    chosen = {}
    for record in measured:
        choice = "default" if record["algorithm"] == DEFAULT else "best"
        key = record["op"], record["size_bytes"], choice
        rank = (not record["verified"], record["median_s"])
        if key not in chosen or rank < chosen[key][0]:
            chosen[key] = rank, dict(record, choice=choice)
    return [record for _, record in chosen.values()]


def with_limits(records, limits):
    """Adds the medians of the bare sockets: limit_s of a pair, shape_limit_s of the op's shape, or 0 for
    one that was not measured."""
    medians = {(limit["op"], limit["size_bytes"]): limit["median_s"] for limit in limits}
    return [dict(record, limit_s=medians.get(("pair", record["size_bytes"]), 0),
                 shape_limit_s=medians.get((record["op"], record["size_bytes"]), 0)) for record in records]
