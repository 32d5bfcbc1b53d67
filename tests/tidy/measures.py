"""Sizes and rates of the tree: classes, folders, words of comment, prose.

A Measure gives values under keys: `methods` one for each class, `entries` one for each folder, a rate
one for the whole tree. A value outside the measure's limits is a finding, unless ratchet.txt has an
entry for it, a line "MEASURE KEY VALUE". An entry holds what was measured when it was written, and the
value must not get worse. An entry is stale, which is a finding too, if the value is within the limits
or better than the entry by more than a tenth: `tidy.py --lower` brings such entries up to date.

A C++ struct whose member functions are all operators is plain data: options, counters, messages. So is a
NamedTuple of Python without methods. They are no classes in the sense of these measures, because nothing in
them can act on their fields.
"""

import ast
import collections
import collections.abc
import dataclasses
import functools
import math
import re
import subprocess

from tests.tidy.sources import CPP, comments_of, ctags, matches

RATCHET = "tests/tidy/ratchet.txt"
SLACK = 0.1

# Lines of these are no lines of the product.
NOT_PRODUCT = ("tests/*", "benchmarks/*", "examples/*", "scripts/*", "bazel/*", "third_party/*")
NOT_PRODUCT += ("python/tests/*", "src/sim/*", "*/testing/*", "*/fuzz/*", "*_test.*", "*_fuzz.*")
NOT_PRODUCT += ("*_conformance.*", "*_harness.*", "*_world.*", "*_simulation.*", "*_bench.cc")

COMMENTED = ("src/*", "include/*", "protos/*", "python/*", "docs/*")
COMMENTED_SUFFIXES = CPP + (".py", ".proto", ".md")

# ctags takes an annotation behind a field for a method, unless it expands to nothing.
ANNOTATIONS = ("GUARDED_BY", "PT_GUARDED_BY", "EXCLUSIVE_LOCKS_REQUIRED", "SHARED_LOCKS_REQUIRED")
ANNOTATIONS += ("LOCKS_EXCLUDED", "EXCLUSIVE_LOCK_FUNCTION", "UNLOCK_FUNCTION")
BARE_ANNOTATIONS = ("LOCKABLE", "SCOPED_LOCKABLE", "NO_THREAD_SAFETY_ANALYSIS")


@dataclasses.dataclass
class Class:
    """A C++ or Python class, not plain data. A nested class is one of its own, apart from the outer."""

    name: str
    place: str  # path:line of the definition
    methods: int = 0  # declared in the class
    fields: int = 0  # without static ones
    lines: int = 0  # of the bodies of its methods, wherever they are


@dataclasses.dataclass(frozen=True)
class Measure:
    """What is measured and where it must stay: at_least <= value <= at_most."""

    values: collections.abc.Callable  # of a Tree: (key, value, place) of each
    unit: str
    at_least: float = 0
    at_most: float = math.inf

    def worse(self, value, than):
        """Whether a value outside the limits is farther outside than another one."""
        return value > than if value > self.at_most else value < than

    def within(self, value):
        return self.at_least <= value <= self.at_most


@functools.lru_cache(maxsize=1)
def classes(tree):
    """The classes of the tree. Two of one name in two anonymous namespaces are two classes."""
    return cpp_classes(tree) + python_classes(tree)


def cpp_classes(tree):
    options = ["--languages=C++", "--map-C++=+.h", "--kinds-C++=cspmf", "--fields=+neKs"]
    options += [option for name in ANNOTATIONS for option in ("-D", f"ABSL_{name}(x)=")]
    options += [option for name in BARE_ANNOTATIONS for option in ("-D", f"ABSL_{name}=")]
    tags = ctags(tree, tree.ending(CPP), *options)
    found, spans = {}, collections.defaultdict(list)
    data = {}  # the structs in which no function but an operator was seen
    for tag in tags:
        if tag["kind"] in ("class", "struct"):
            scoped = "::".join(filter(None, (tag.get("scope"), tag["name"])))
            name = re.sub(r"__anon\w+::", "", scoped)
            found.setdefault(scoped, Class(name, f"{tag['path']}:{tag['line']}"))
            spans[scoped].append((tag["path"], tag["line"], tag.get("end", tag["line"])))
            data[scoped] = data.get(scoped, True) and tag["kind"] == "struct"
    for tag in tags:
        scope, kind = tag.get("scope"), tag["kind"]
        if scope not in found:
            continue
        if kind in ("prototype", "function") and not tag["name"].startswith("operator"):
            data[scope] = False
        if kind == "member":
            found[scope].fields += not re.search(r"\bstatic\b", tag["pattern"])
        elif kind == "prototype":
            found[scope].methods += 1
        elif kind == "function":
            found[scope].lines += tag["end"] - tag["line"] + 1
            found[scope].methods += any(
                path == tag["path"] and first <= tag["line"] <= last
                for path, first, last in spans[scope]
            )
    return [each for scope, each in found.items() if not data[scope]]


def python_classes(tree):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path in tree.ending((".py",)):
        for node in ast.walk(ast.parse(tree.text(path))):
            if not isinstance(node, ast.ClassDef):
                continue
            methods = [each for each in node.body if isinstance(each, functions)]
            if not methods and any(ast.unparse(base).endswith("NamedTuple") for base in node.bases):
                continue
            fields = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
            fields |= {each.attr for each in ast.walk(node) if _sets_own(each)}
            lines = sum(each.end_lineno - each.lineno + 1 for each in methods)
            name, place = f"{path}:{node.name}", f"{path}:{node.lineno}"
            found.append(Class(name, place, len(methods), len(fields), lines))
    return found


def _sets_own(node):
    """Whether a node of the syntax is `self.something` where it is assigned."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def folder_entries(tree):
    """(folder, entries, place) of every folder of src/ and python/ that is no corpus."""
    entries = collections.defaultdict(set)
    for path in tree.matching(("src/*", "python/*")):
        parts = path.split("/")
        for depth in range(1, len(parts)):
            entries["/".join(parts[:depth])].add(parts[depth])
    return [
        (folder, len(names), f"{folder}:1")
        for folder, names in sorted(entries.items())
        if not folder.endswith("_corpus")
    ]


@functools.lru_cache(maxsize=1)
def words(tree):
    """How often each word stands in the comments, and "" for all of them."""
    counts = collections.Counter()
    for path in tree.matching(COMMENTED):
        if path.endswith(COMMENTED_SUFFIXES):
            found = re.findall(r"[a-z']+", comments_of(path, tree.text(path)).lower())
            counts.update(found)
            counts[""] += len(found)
    return counts


def rate_of(*which):
    """The values of a measure: so many of these words in 10,000 words of comment."""

    def values(tree):
        counts = words(tree)
        if not counts[""]:
            return []
        rate = 10000 * sum(counts[word] for word in which) / counts[""]
        return [("tree", round(rate, 1), ".:1")]

    return values


def product(tree, suffixes):
    return [path for path in tree.ending(suffixes) if not matches(path, NOT_PRODUCT)]


def prose(tree):
    """The comment lines of the product's .cc files, in percent of all that are not empty."""
    lines = [
        line.strip()
        for path in product(tree, (".cc",))
        for line in tree.text(path).splitlines()
        if line.strip()
    ]
    if not lines:
        return []
    share = 100 * sum(line.startswith("//") for line in lines) / len(lines)
    return [("tree", round(share, 1), ".:1")]


def of_classes(field):
    """The values of a measure of classes. Of classes of one name the largest counts."""

    def values(tree):
        largest = {}
        for each in classes(tree):
            row = (each.name, getattr(each, field), each.place)
            if each.name not in largest or row[1] > largest[each.name][1]:
                largest[each.name] = row
        return list(largest.values())

    return values


MEASURES = {
    "methods": Measure(of_classes("methods"), "methods", at_most=60),
    "fields": Measure(of_classes("fields"), "fields", at_most=20),
    "body-lines": Measure(of_classes("lines"), "lines of bodies", at_most=1300),
    "entries": Measure(folder_entries, "entries", at_most=30),
    "told-who-nobody": Measure(
        rate_of("told", "who", "nobody"), "'told', 'who', 'nobody' in 10,000 words", at_most=5
    ),
    "if": Measure(rate_of("if"), "'if' in 10,000 words of comment", at_least=60, at_most=120),
    "returns": Measure(
        rate_of("returns"), "'returns' in 10,000 words of comment", at_least=10, at_most=44
    ),
    "prose": Measure(prose, "% comment lines in the product's .cc", at_least=8, at_most=12),
}


def ratchet(tree):
    """{(measure, key): (value, line)} of ratchet.txt."""
    entries = {}
    if RATCHET not in tree.paths:
        return entries
    for number, line in enumerate(tree.text(RATCHET).splitlines(), start=1):
        if line and not line.startswith("#"):
            measure, key, value = line.split()
            entries[measure, key] = (float(value), number)
    return entries


def kept(tree, names):
    """What of some measures is outside its limits and beyond its entry, and the stale entries."""
    findings = []
    entries = ratchet(tree)
    for name in names:
        measure = MEASURES[name]
        measured = {key: (value, place) for key, value, place in measure.values(tree)}
        for key, (value, place) in measured.items():
            entry, line = entries.get((name, key), (None, None))
            message = f"{key} has {value:g} {measure.unit}"
            if measure.within(value):
                if entry is not None:
                    findings.append(f"{RATCHET}:{line}: {message}, within the limit: drop the entry")
            elif entry is None:
                limit = f"{measure.at_least:g} to {measure.at_most:g}".replace(" to inf", " or more")
                limit = limit.removeprefix("0 to ")
                findings.append(f"{place}: {message}; the limit is {limit}")
            elif measure.worse(value, entry):
                findings.append(f"{place}: {message}; it had {entry:g} and must not get worse")
            elif abs(value - entry) > SLACK * entry:
                findings.append(f"{RATCHET}:{line}: {message} and not {entry:g}: lower the entry")
        findings += [
            f"{RATCHET}:{line}: there is no {key} any more: drop the entry"
            for (which, key), (_, line) in entries.items()
            if which == name and key not in measured
        ]
    return findings


def lower(tree):
    """Rewrites ratchet.txt: entries that got better get the value of today, stale ones go."""
    measured = {
        (name, key): value for name, each in MEASURES.items() for key, value, _ in each.values(tree)
    }
    kept_lines = []
    for line in tree.text(RATCHET).splitlines():
        if line and not line.startswith("#"):
            name, key, entry = line.split()
            value, measure = measured.get((name, key)), MEASURES[name]
            if value is None or measure.within(value):
                continue
            if not measure.worse(value, float(entry)):
                # One word more or less is no change for the worse.
                value = math.ceil(value) if value > measure.at_most else value
                line = f"{name} {key} {value:g}"
        kept_lines.append(line)
    (tree.root / RATCHET).write_text("\n".join(kept_lines) + "\n")


def tracked_files(tree):
    """How many files git tracks, or how many there are where there is no git."""
    run = subprocess.run(
        ["git", "ls-files"], cwd=tree.root, capture_output=True, text=True, check=False
    )
    return len(run.stdout.splitlines()) if run.returncode == 0 else len(tree.paths)


def table(tree):
    """The sizes and rates as text, the largest classes and folders first."""
    by_size = sorted(
        classes(tree), key=lambda each: (-each.methods, -each.fields, -each.lines, each.name)
    )
    rows = ["classes: methods / fields / lines of bodies (limits 60 / 20 / 1,300)"]
    rows += [f"  {each.methods:4} {each.fields:4} {each.lines:5}  {each.name}" for each in by_size[:12]]
    for field in ("methods", "fields", "lines"):
        most = max(by_size, key=lambda each: getattr(each, field), default=Class("none", ""))
        rows.append(f"most {field}: {getattr(most, field)} in {most.name}")
    rows.append("folders of src/ and python/ with the most entries (limit 30)")
    folders = sorted(folder_entries(tree), key=lambda row: (-row[1], row[0]))
    rows += [f"  {count:4}  {folder}" for folder, count, _ in folders[:8]]
    for name in ("told-who-nobody", "if", "returns", "prose"):
        measure = MEASURES[name]
        limit = f"{measure.at_least:g} to {measure.at_most:g}"
        rows += [f"{value:g} {measure.unit} (limit {limit})" for _, value, _ in measure.values(tree)]
    lines = sum(tree.text(path).count("\n") for path in product(tree, CPP + (".py", ".proto")))
    rows.append(f"{words(tree)['']} words of comment")
    rows.append(f"{lines} lines of the product (.cc, .h, .py, .proto)")
    rows.append(f"{tracked_files(tree)} tracked files")
    return "\n".join(rows)
