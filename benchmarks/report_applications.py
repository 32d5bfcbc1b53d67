"""The part of a report about applications: what benchmarks/ray records of programs of examples/ray, Phalanx beside Ray.

An experiment is one application of one size on the same hosts, with the same emulated work and the same kill, if there is one. Its series
are the ways in which the program ran.
"""

import dataclasses

from benchmarks.ray_applications import fastest_of_ray, figure, seconds_to_equal, verdict
from benchmarks.records import BadInput, format_size

LABELS = {"phalanx": "Phalanx", "ray:flat": "Ray, flat", "ray:trees": "Ray, trees"}
# The keys of a record of an application, beside those of every record.
REQUIRED = ("title", "algorithm", "gradient_seconds", "kill", "unit", "emulated", "floor_s", "cpu_share", "learned", "trials")


@dataclasses.dataclass
class Experiment:
    """The records of one application under the same conditions."""

    record: dict  # any of them: the conditions
    ways: dict = dataclasses.field(default_factory=dict)  # {label: record}

    def title(self):
        first = self.record
        emulated = "emulated: " if first["emulated"] else ""
        work = f", {first['gradient_seconds']:g} s of emulated work" if first["emulated"] else ""
        kill = f", worker {first['kill'].replace('@', ' killed at step ')}" if first["kill"] else ""
        links = f"links of {first['rate']}" if first.get("rate") else "links not shaped"
        return f"{emulated}{first['title']}, {format_size(first['size_bytes'])}, {first['world']} hosts, {links}{work}{kill}"

    def name(self):
        first = self.record
        parts = [first["op"], first["size_bytes"], first["world"], first.get("rate") or "unshaped", first["gradient_seconds"],
                 first["kill"].replace("@", "at")]
        return "-".join(str(part) for part in parts if part != "").replace(".", "_")

    def curve_name(self):
        """What the curves of its trials show: "loss", "score"; None if they show nothing of use."""
        return self.record["trials"][0].get("curve_name")


def split(files):
    """Returns {path: the other records} and the experiments of {path: records}."""
    others, found = {}, {}
    for path, loaded in files.items():
        others[path] = [record for record in loaded if "trials" not in record]
        for record in loaded:
            if "trials" in record:
                _add(found, path, record)
    return others, [found[key] for key in sorted(found)]


def _add(found, path, record):
    for key in REQUIRED:
        if key not in record:
            raise BadInput(f"{path}: the record of {record['op']} has trials, but no {key!r}: give files that benchmarks/ray --json wrote")
    experiment = Experiment(record)
    experiment = found.setdefault(experiment.name(), experiment)
    label = LABELS.get(record["algorithm"], record["algorithm"])
    if label in experiment.ways:
        raise BadInput(f"{path} has {experiment.title()} twice for {label}")
    experiment.ways[label] = record


def rows(experiment):
    """Yields the cells of each way: times of one unit, and what they are compared with."""
    ray = fastest_of_ray(experiment.ways.values())
    equal = seconds_to_equal(list(experiment.ways.values()))
    for number, (label, record) in enumerate(experiment.ways.items()):
        each = f"{record['median_s']:.3g} ({record['min_s']:.3g}, {record['max_s']:.3g})"
        rate = "-" if record["kill"] else f"{figure(1 / record['median_s'])} {record['unit']}"
        yield [label, rate, each if verdict(record) == "right" else f"{each} **{verdict(record)}**",
               f"{record['median_s'] / record['floor_s']:.2f}" if record["floor_s"] else "-",
               f"{ray['median_s'] / record['median_s']:.2f}" if ray and not record["kill"] else "-",
               f"{equal[number]:.2f}" if equal else "-", f"{100 * record['cpu_share']:.0f} %"]


def failure_rows(experiment):
    """Yields the cells of each run with a kill."""
    for label, record in experiment.ways.items():
        for kill in (trial["kill"] for trial in record["trials"] if "kill" in trial):
            keys = ("before_s", "during_s", "longest_s", "after_s")
            times = ["-" if kill[key] is None else f"{kill[key]:.3f}" for key in keys]
            lost = [("-" if kill[key] is None else f"{kill[key]:.1f}") for key in ("seconds_lost", "steps_lost")]
            yield [label, *times, *lost]


def render(experiments, plots, table):
    """Returns the page's parts; `plots` is {experiment name: [(what, file)]}, `table` makes one of a header and rows."""
    parts = []
    for experiment in experiments:
        parts.append(f"## {experiment.title()}")
        header = ["way", "rate", "seconds of one, median (minimum, maximum)", "of the links' floor", "times as fast as Ray's best",
                  "seconds to equal loss or score", "CPU of the machine"]
        parts.append(table(header, rows(experiment)))
        killed = list(failure_rows(experiment))
        if killed:
            parts.append(table(["way", "step before, s", "between, s", "longest, s", "after, s", "seconds lost", "steps lost"], killed))
        parts += [f"![{experiment.title()}: {what}]({file})" for what, file in plots.get(experiment.name(), [])]
    return parts
