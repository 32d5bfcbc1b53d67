"""The applications of `benchmarks/ray`: programs of examples/ray, how they are run, and what no transport can be faster than."""

import dataclasses
import re
import statistics

from benchmarks.records import BadInput

# In these ways each program runs; each trial of all of them is in turn.
WAYS = {
    "phalanx": ["--transport=phalanx"],
    "ray:flat": ["--transport=ray", "--ray-form=flat"],
    "ray:trees": ["--transport=ray", "--ray-form=trees"],
}


@dataclasses.dataclass(frozen=True)
class Application:
    """One program with its options, in `benchmarks/ray --ops`."""

    op: str
    title: str
    program: str
    options: tuple
    # What the links alone need for one unit of the program's rate (a step, a sample, a request), in transfers of the emulated
    # vector between two hosts: a function of the number of workers. None: no such limit is known.
    floor: object = None
    ways: tuple = tuple(WAYS)
    # Whether its arrays have an emulated size, and that as a part of --application-size. If not, it trains its own small model.
    emulated: bool = True
    part: float = 1
    # Of a failure run, whose steps before and after are to be alike: in place of the options.
    killed: tuple = ()

    def option(self, name, default=None):
        return next((each.split("=")[1] for each in self.options if each.startswith(f"--{name}=")), default)

    def steps(self):
        """Returns the steps of the program; of serving all requests."""
        return int(self.option("steps", 0)) or int(self.option("requests")) * len(self.option("clients").split(","))


APPLICATIONS = (
    # The server's link carries each step's weights once and each step's sum once, at the same time at best.
    Application("sgd3", "asynchronous SGD, k = 3", "async_sgd.py", ("--first=3", "--steps=8"), lambda _: 1),
    Application("sgd6", "asynchronous SGD, k = 6", "async_sgd.py", ("--first=6", "--steps=5"), lambda _: 1),
    # Every worker sends and receives what the others lack.
    Application("sgd-one-reduce", "synchronous SGD, one reduce", "async_sgd.py", ("--variant=one-reduce", "--steps=8"),
                lambda workers: 2 * (workers - 1) / workers, ways=("phalanx", "ray:flat")),
    # Of one gradient, or one rollout: three are in a step.
    Application("a3c", "A3C, k = 3", "a3c.py", ("--first=3", "--steps=6"), lambda _: 1 / 3),
    Application("impala", "IMPALA, k = 3", "impala.py", ("--first=3", "--steps=6", "--rollout-megabytes=1"), lambda _: 1 / 3),
    # Each request goes to all replicas; the answers are small.
    Application("serving", "serving by an ensemble", "serving.py", ("--clients=1,4", "--requests=5"), lambda _: 1, part=0.5,
                killed=("--clients=1", "--requests=10")),
    Application("sgd-spirals", "asynchronous SGD of a small network, k = 3", "async_sgd.py", ("--first=3", "--steps=300"), emulated=False),
    Application("a3c-cartpole", "A3C of CartPole, k = 3", "a3c.py", ("--first=3", "--steps=60"), emulated=False),
    Application("impala-cartpole", "IMPALA of CartPole, k = 3", "impala.py", ("--first=3", "--steps=60"), emulated=False),
)
BY_OP = {application.op: application for application in APPLICATIONS}
# Names for several ops.
GROUPS = {"sgd": ("sgd3", "sgd6", "sgd-one-reduce"), "small": ("sgd-spirals", "a3c-cartpole", "impala-cartpole")}


def expanded(ops):
    """Returns the ops, with the members of each group instead of its name."""
    return list(dict.fromkeys(member for op in ops for member in GROUPS.get(op, (op,))))


def chosen_ways(ways, wanted):
    """Returns those of {op: ways} that are wanted, or all if `wanted` is empty.

    Raises BadInput if an op has none of them, or no op has one of them.
    """
    known = {way for each in ways.values() for way in each}
    unknown = [way for way in wanted if way not in known]
    if unknown:
        raise BadInput(f"unknown way {unknown[0]!r}; there are {', '.join(sorted(known))}")
    chosen = {op: [way for way in each if way in wanted or not wanted] for op, each in ways.items()}
    for op, each in chosen.items():
        if not each:
            raise BadInput(f"{op} has none of these ways; it has {', '.join(ways[op])}")
    return chosen


def plan_line(application, ways, workers, runs, size_bytes_of_all, gradient_seconds=0.0, kill=None):
    """Returns the step of the plan that applications.py reads, as a dict. With `kill`, WORKER@STEP, it is a failure run.

    Its size_bytes are 0 if the program trains its own model.
    """
    options = application.killed if kill and application.killed else application.options
    command, size_bytes = [application.program, f"--workers={workers}", *options], 0
    if application.emulated:
        size_bytes = int(size_bytes_of_all * application.part)
        command += [f"--megabytes={size_bytes / (1 << 20)}", f"--gradient-seconds={gradient_seconds}"]
    return {"op": application.op, "title": application.title, "size_bytes": size_bytes,
            "gradient_seconds": gradient_seconds if application.emulated else 0, "runs": runs,
            "command": command + ([f"--kill={kill}"] if kill else []), "kill": kill or "",
            "ways": {way: WAYS[way] for way in ways}}


def record_of(step, way, trials):
    """Returns the record of one way: its times are those of one unit of the program's rate, its trials the programs' own records."""
    size_bytes = step["size_bytes"] or round(trials[0]["megabytes"] * (1 << 20))
    return {"op": step["op"], "title": step["title"], "algorithm": way, "size_bytes": size_bytes,
            "gradient_seconds": step["gradient_seconds"], "kill": step["kill"], "unit": trials[0]["unit"],
            "emulated": any(trial["emulated"] for trial in trials), "each_s": [1 / trial["rate"] for trial in trials],
            "verified": all(trial["right"] for trial in trials), "learned": all(trial["learned"] for trial in trials),
            "cpu_share": statistics.median(trial["cpu_share"] or 0 for trial in trials), "trials": trials}


def with_floors(measured, pair_seconds):
    """Adds limit_s, the seconds of a bare transfer of the vector between two hosts, and floor_s, what the links need for one unit; 0 if
    that is not known. `pair_seconds` is a bare transfer of --application-size."""
    made = []
    for record in measured:
        application = BY_OP[record["op"]]
        limit = pair_seconds * application.part if application.emulated else 0
        floor = application.floor(record["trials"][0]["workers"]) * limit if application.floor else 0
        made.append(dict(record, limit_s=limit, floor_s=floor))
    return made


def fastest_of_ray(found):
    """Returns the record of Ray's fastest way among these, or None."""
    return min((record for record in found if record["algorithm"].startswith("ray:")), key=lambda record: record["median_s"], default=None)


def seconds_to_equal(found):
    """Returns for each of these records the median of the seconds until the program's score, or the loss that every trial has reached.

    None, if the programs give neither, or some trial's has not come there.
    """
    trials = [trial for record in found for trial in record["trials"]]
    names = {trial.get("curve_name") for trial in trials}
    if names == {"score"} and all(trial["reached_after_s"] is not None for trial in trials):
        return [statistics.median(trial["reached_after_s"] for trial in record["trials"]) for record in found]
    if names != {"loss"} or any(trial["curve"][-1][1] >= trial["curve"][0][1] for trial in trials):
        return None
    loss = max(min(value for _, value in trial["curve"]) for trial in trials)
    return [statistics.median(next(seconds for seconds, value in trial["curve"] if value <= loss) for trial in record["trials"])
            for record in found]


def verdict(record):
    """Returns whether the results of the programs are right, in a word."""
    return "wrong" if not record["verified"] else "right" if record["learned"] else "not learned"


def figure(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(measured):
    """Returns the lines of the table that benchmarks/ray prints."""
    lines = ["%-16s %-10s %10s %11s %10s %10s %8s %8s %8s %9s %s" % (
        "op", "way", "rate", "unit", "median s", "max s", "of S/B", "of floor", "CPU", "of Ray's", "right")]
    for r in measured:
        ray = fastest_of_ray(other for other in measured if (other["op"], other["kill"]) == (r["op"], r["kill"]))
        of_ray = f"{ray['median_s'] / r['median_s']:.2f} x" if ray and not r["kill"] else "-"
        lines.append("%-16s %-10s %10s %11s %10.3g %10.3g %8s %8s %7.0f%% %9s %s" % (
            r["op"], r["algorithm"] + (" kill" if r["kill"] else ""), figure(1 / r["median_s"]), r["unit"], r["median_s"], r["max_s"],
            f"{r['median_s'] / r['limit_s']:.3f}" if r["limit_s"] else "-",
            f"{r['median_s'] / r['floor_s']:.3f}" if r["floor_s"] else "-", 100 * r["cpu_share"], of_ray,
            verdict(r)))
        for trial in r["trials"]:
            if "kill" in trial:
                kill = {key: float("nan") if value is None else value for key, value in trial["kill"].items()}
                lines.append("    killed %(worker)s at step %(step)s: before %(before_s).3f s, longest %(longest_s).3f s, "
                             "after %(after_s).3f s, %(seconds_lost).2f s or %(steps_lost).1f steps lost" % kill)
    for op in dict.fromkeys(r["op"] for r in measured):
        found = [r for r in measured if r["op"] == op]
        times = seconds_to_equal(found)
        if times:
            name = found[0]["trials"][0]["curve_name"]
            lines.append(f"{op}: seconds to equal {name}: " + ", ".join(f"{r['algorithm']} {t:.2f}" for r, t in zip(found, times)))
    return lines


def check(ops, workers, kill=None):
    """Raises BadInput if an application is unknown, takes more results in a step than it has workers, or has no such worker or step
    to kill."""
    if kill and not re.fullmatch(r"\d+@\d+", kill):
        raise BadInput(f"--kill {kill!r} is not like 1@3")
    for op in ops:
        if op not in BY_OP:
            raise BadInput(f"unknown application {op!r}; there are {', '.join([*GROUPS, *BY_OP])}")
        first, steps = int(BY_OP[op].option("first", 1)), BY_OP[op].steps()
        if first > workers:
            raise BadInput(f"{op} takes the first {first} of its workers; with --nodes {workers + 1} it has {workers}")
        worker, step = map(int, kill.split("@")) if kill else (0, 0)
        if worker >= workers or step >= steps:
            raise BadInput(f"--kill {kill}: {op} has the workers 0 to {workers - 1} and the steps 0 to {steps - 1}")
