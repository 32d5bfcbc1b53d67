"""Records of benchmarks: one op of one size, several runs. `run` and `peers` write them as JSON, `report` reads them."""

import json
import pathlib
import re
import statistics

# The keys of every record of an operation, and their types.
REQUIRED = {
    "op": str, "size_bytes": int, "world": int, "median_s": (int, float), "min_s": (int, float), "max_s": (int, float),
    "limit_s": (int, float), "verified": bool,
}
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class BadInput(Exception):
    """An error in the user's input; the text gives the remedy."""


def parse_size(text):
    match = re.fullmatch(r"(\d+)([A-Za-z]*)", text)
    if not match or match[2] not in UNITS or int(match[1]) == 0:
        raise BadInput(f"{text!r} is no size; sizes are 4096, 64KiB, 1MiB, 1GiB")
    return int(match[1]) * UNITS[match[2]]


def format_size(size):
    for unit in ("GiB", "MiB", "KiB"):
        if size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]} {unit}"
    return f"{size} B"


def summarize(record):
    """Adds the statistics of `each_s`, the maxima over ranks of each run."""
    each = record["each_s"]
    return dict(record, runs=len(each), median_s=statistics.median(each), min_s=min(each), max_s=max(each))


def check(record, where):
    """Raises BadInput, naming `where`, unless `record` is a record of an operation."""
    if not isinstance(record, dict):
        raise BadInput(f"{where} is {json.dumps(record)[:40]}, not a record")
    for key, kind in REQUIRED.items():
        if key not in record:
            raise BadInput(f"{where} has no {key!r}: give files that benchmarks/run --json or benchmarks/peers --json wrote")
        if not isinstance(record[key], kind) or (isinstance(record[key], bool) and kind is not bool):
            raise BadInput(f"{where}: {key!r} is {json.dumps(record[key])[:40]}")
    if not record["median_s"] > 0 or not record["size_bytes"] > 0:
        raise BadInput(f"{where}: the size and the median must be more than 0")


def load(path):
    """Returns the records of one file, without those that have no size (`idle` and barriers)."""
    try:
        records = json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}") from error
    if not isinstance(records, list):
        raise BadInput(f"{path} has no list of records: give files that benchmarks/run --json or benchmarks/peers --json wrote")
    loaded = []
    for number, record in enumerate(records, 1):
        if isinstance(record, dict) and record.get("op") in ("idle", "group_barrier"):
            continue
        check(record, f"{path}, record {number}")
        loaded.append(record)
    return loaded
