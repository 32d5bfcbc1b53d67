"""One Markdown page of records from several files: a section for each op on the same hosts, tables of time and of ratio.

A series is Phalanx, or a peer with its default or its best algorithm, under given conditions. If several files have the same
series, its name contains the file.
"""

import dataclasses
import pathlib

from benchmarks.records import BadInput, format_size

# Keys of a record that define another experiment, and the form in which they appear in a series' name.
CONDITIONS = {
    "waiting": "Gets waiting", "with_put": "Put included", "stagger": "staggered by {}", "kill": "killing {}",
    "stop": "stopping {}", "kill_member": "killing a member after {}",
    "beside": "beside {}", "clients": "{} clients each", "dtype": "{}", "reduce_op": "{}",
    "order": "{} order", "subset": "any {} sources", "absent": "{} of them never put", "private": "private cluster",
    "model": "a model of {}",
}

# Ops that do the same work as one of the peers, and the name of their series beside it.
SAME_WORK = {"job_allreduce": ("group_allreduce", "Phalanx, session")}

PEERS = {"openmpi": "Open MPI", "gloo": "Gloo", "rabit": "Rabit"}


@dataclasses.dataclass
class Section:
    """The measurements of one op on the same hosts."""

    op: str
    world: int
    rate: str
    zones: int
    zone_rate: str
    series: dict = dataclasses.field(default_factory=dict)  # {name: {size: record}}, in the order of the files

    def title(self):
        links = f"links of {self.rate}" if self.rate else "links not shaped"
        zones = f", {self.zones} zones joined by {self.zone_rate or 'links not shaped'}" if self.zones > 1 else ""
        return f"{self.op}, {self.world} ranks, {links}{zones}"

    def name(self):
        """The name for files and anchors."""
        parts = [self.op, self.world, self.rate or "unshaped"]
        parts += [f"{self.zones}zones", self.zone_rate or "unshaped"] if self.zones > 1 else []
        return "-".join(map(str, parts))

    def sizes(self):
        return sorted({size for each in self.series.values() for size in each})

    def limits(self):
        """Returns {size: the smallest limit_s of any series}, without sizes that have no limit."""
        limits = {}
        for each in self.series.values():
            for size, record in each.items():
                if record["limit_s"] > 0:
                    limits[size] = min(record["limit_s"], limits.get(size, record["limit_s"]))
        return limits


def series_name(record):
    if "peer" in record:
        name = f"{PEERS.get(record['peer'], record['peer'])}, {record.get('choice', record.get('algorithm', ''))}"
    else:
        _, name = SAME_WORK.get(record["op"], ("", "Phalanx"))
    conditions = {key: record[key] for key in CONDITIONS if record.get(key)}
    if conditions.get("clients") == 1:
        del conditions["clients"]
    return ", ".join([name] + [CONDITIONS[key].format(value) for key, value in conditions.items()])


def sections(files):
    """Returns the sections of {path: records}, ordered by op, ranks and rate."""
    found, homes = {}, {}
    for path, loaded in files.items():
        for record in loaded:
            op, _ = SAME_WORK.get(record["op"], (record["op"], ""))
            place = (op, record["world"], record.get("rate") or "", record.get("zones") or 1,
                     record.get("zone_rate") or "")
            homes.setdefault((place, series_name(record), record["size_bytes"]), []).append(path)
            found.setdefault(place, []).append((path, record))
    shared = {(place, name) for (place, name, _), paths in homes.items() if len(set(paths)) > 1}
    made = []
    for place in sorted(found):
        section = Section(*place)
        for path, record in found[place]:
            name = series_name(record)
            if (place, name) in shared:
                name += f" ({pathlib.Path(path).stem})"
            each = section.series.setdefault(name, {})
            if record["size_bytes"] in each:
                raise BadInput(f"{path} has {section.title()}, {format_size(record['size_bytes'])} twice for {name}")
            each[record["size_bytes"]] = record
        made.append(section)
    return made


def format_ms(seconds):
    ms = seconds * 1e3
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}" if ms < 1000 else f"{ms:.0f}"


def time_cell(record):
    text = f"{format_ms(record['median_s'])} ({format_ms(record['min_s'])}, {format_ms(record['max_s'])})"
    if record.get("choice") == "best":
        text += f" {record['algorithm']}"
    return text if record["verified"] else text + " **wrong bytes**"


def ratio_cell(record):
    return f"{record['median_s'] / record['limit_s']:.2f}" if record["limit_s"] > 0 else "-"


def table(header, rows):
    def line(cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([line(header), "|" + "---|" * len(header)] + [line(row) for row in rows])


def _by_size(section, cell):
    for size in section.sizes():
        yield [format_size(size)] + [cell(each[size]) if size in each else "" for each in section.series.values()]


def _render_section(section, plots):
    names = list(section.series)
    limits = section.limits()
    times = [row + [format_ms(limits[size]) if size in limits else "-"]
             for size, row in zip(section.sizes(), _by_size(section, time_cell))]
    parts = [f"## {section.title()}", "Milliseconds: median (minimum, maximum) of the runs' maxima over ranks.",
             table(["size"] + names + ["limit"], times), "Median over the limit of the same run:",
             table(["size"] + names, _by_size(section, ratio_cell))]
    return parts + [f"![{section.title()}: {what}]({file})" for what, file in plots]


def render(made, files, plots):
    """Returns the page of `sections`; `plots` is {section name: [(title, file)]}."""
    intro = ("The limit is one bare transfer of the same size between two ranks over a warm socket, measured in the same run. "
             "A peer's default is what it chooses itself, its best the best of all its algorithms, chosen by hand for each size.")
    parts = ["# Benchmarks", intro, "Records: " + ", ".join(f"`{pathlib.Path(path).name}`" for path in files) + "."]
    for section in made:
        parts += _render_section(section, plots.get(section.name(), []))
    return "\n\n".join(parts) + "\n"
