#!/usr/bin/env python3
"""Checks the part of the house style that a machine can check, over the whole tree.

usage: tests/tidy/tidy.py [--measure | --lower] [ROOT]

--measure prints the sizes and the rates that measures.py knows; --lower brings the entries of
ratchet.txt down to the values of today.

Each check is a function from a Tree to a list of findings, "path:line: message". CHECKS names all
checks; the tables at the top have the exceptions. tidy_test.py runs each check over a small violation,
and tree_test.py runs all checks over the real tree.
"""

import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve()
sys.path.append(str(HERE.parents[2]))

from tests.tidy import measures  # noqa: E402
from tests.tidy.sources import CPP, Tree, code_of, ctags, matches  # noqa: E402

MAX_FUNCTION_LINES = 70
MAX_P90_FUNCTION_LINES = 35
MAX_FILE_LINES = 800

SOURCES = CPP + (".py", ".bzl", ".proto")
CLANG_FORMAT = "clang-format-14"

# A folder of src/ can include from itself and from the folders before it. `sim` can include
# from all folders, and only tests can include from `sim`.
LAYERS = ("common", "net", "directory", "object_store", "collectives", "jobs", "ps", "local", "client", "rabit", "ps_lite", "node", "cli", "python")

TESTS = ("tests/*", "*_test.cc", "*_fuzz.cc", "*_fuzz.h", "*_conformance.h", "*_conformance.cc")
TESTS += ("src/sim/*", "src/*/testing/*", "benchmarks/*")
HEADERS_OF_PS_LITE = ("include/ps/*",)


@dataclasses.dataclass(frozen=True)
class Ban:
    """A pattern that code (comments and literals aside) must not contain outside `allowed`."""

    pattern: str
    why: str
    files: tuple = ("*.cc", "*.h")
    allowed: tuple = ()


BANS = (
    Ban(
        r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor)\b|(?<![\w.:>])sleep\(",
        "nothing sleeps: time is a timer, and in tests it is moved by hand",
    ),
    Ban(
        r"\btime\.sleep\b|\basyncio\.sleep\(\s*[^0)\s]",
        "tests wait for an event, not for time",
        files=("tests/*.py", "python/*.py"),
    ),
    Ban(r"\brandom_device\b", "take a Random& (src/common/random.h)"),
    Ban(r"(?<![\w.>])(rand|srand|drand48)\(", "take a Random& (src/common/random.h)"),
    Ban(
        r"\bsystem_clock::now\b|\babsl::Now\(|\bgettimeofday\b|(?<![\w.>])time\((nullptr|NULL|0)\)",
        "wall time jumps: `now` is passed in, from a monotonic clock",
        # A line of a program's log has the time of day.
        allowed=("tests/process/jumping_clock.cc", "include/dmlc/logging.h"),
    ),
    Ban(
        r"\bCLOCK_(REALTIME|TAI)|\bGPR_CLOCK_REALTIME\b|\bhigh_resolution_clock\b|\bGetCurrentTimeNanos\b",
        "wall time jumps: only a node's incarnation begins with it",
        allowed=("src/node/node.cc", "tests/process/jumping_clock.cc"),
    ),
    Ban(
        r"\bstd::(thread|jthread|async)\b(?!::)",
        "only the rims own threads",
        allowed=TESTS + ("src/common/threads/thread*", "src/common/io/populate.cc", "src/net/loop/event_loop*", "src/net/tcp/resolver*", "src/object_store/memory/memfd_memory*", "examples/*", "src/client/*", "src/ps_lite/*", "src/node/*", "src/cli/*") + HEADERS_OF_PS_LITE,
    ),
    Ban(
        r"\bstd::(recursive_|timed_|shared_)?mutex\b|\bstd::condition_variable|\babsl::Mutex\b",
        "take Mutex and CondVar (src/common/threads/mutex.h): their annotations are checked",
        # libps, and what programs compile for it, has no Abseil, which the annotations need.
        allowed=TESTS + ("src/common/threads/mutex.h", "src/ps_lite/*") + HEADERS_OF_PS_LITE,
    ),
    Ban(r"\busing\s+namespace\b", "a header must not import names", files=("*.h",)),
)


@dataclasses.dataclass(frozen=True)
class Confinement:
    """Headers that only some files can include."""

    headers: str
    allowed: tuple
    why: str


CONFINED = (
    Confinement(
        r"grpc(pp)?/|.*\.grpc\.pb\.h$",
        ("src/*/grpc_*", "src/*/grpc/*", "tests/*", "benchmarks/*"),
        "gRPC stays in the rims: src/*/grpc_*",
    ),
    Confinement(r"asio(\.hpp|/)", ("src/net/*",), "Asio stays in src/net"),
    Confinement(
        r"src/sim/|src/(\w+/)+testing/",
        TESTS,
        "what is for tests is included by tests alone",
    ),
)

# The headers that public headers can include: a user compiles them with Abseil only, and those for programs of
# Rabit and ps-lite without it.
PUBLIC_HEADERS = r"absl/|phalanx/(?!v\d)|[a-z_]+$|std(def|int)\.h$|(sys|linux)/"
DROP_IN_FOLDERS = ("include/rabit/", "include/ps/", "include/dmlc/")
DROP_IN_HEADERS = r"(rabit|ps|dmlc|internal|\.\.)/|[a-z]+(-inl)?\.h$|[a-z_]+$|std(def|bool)\.h$"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([^>"]+)[>"]', re.MULTILINE)
RULE_CALL = re.compile(r"^(native\.\w+|(cc|py|proto|java|sh)_\w+|new_\w+|bind)\(", re.MULTILINE)
LOAD = re.compile(r'^load\(\s*"([^"]+)"', re.MULTILINE)
# Split so that this file does not contain the words.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK|[Ff]or" r" now)\b")


def finding(path, text, offset, message):
    return f"{path}:{text.count(chr(10), 0, offset) + 1}: {message}"


def includes(tree, path):
    """Return (offset, header) of every include of a file."""
    return [(match.start(), match.group(1)) for match in INCLUDE.finditer(tree.text(path))]


def check_format(tree):
    """clang-format has nothing to change."""
    files = tree.ending(CPP)
    if not files:
        return []
    if shutil.which(CLANG_FORMAT) is None:
        print(f"note: {CLANG_FORMAT} is not installed, so formatting was not checked")
        return []
    command = [CLANG_FORMAT, "--dry-run", "--style=file", "--ferror-limit=1"]
    run = subprocess.run(command + files, cwd=tree.root, capture_output=True, text=True, check=False)
    wrong = re.findall(r"^(\S+?:\d+):\d+: (?:warning|error): code should be", run.stderr, re.MULTILINE)
    return [f"{place}: not formatted: run {CLANG_FORMAT} -i on it" for place in wrong]


def check_banned_calls(tree):
    """No sleeps, no private randomness, no wall clock, no threads outside the rims."""
    findings = []
    for ban in BANS:
        pattern = re.compile(ban.pattern)
        for path in tree.matching(ban.files):
            if matches(path, ban.allowed):
                continue
            code = code_of(path, tree.text(path))
            findings += [
                finding(path, code, match.start(), f"`{match.group().strip()}`: {ban.why}")
                for match in pattern.finditer(code)
            ]
    return findings


def function_lengths(tree):
    """Yield (lines, path, first line, name) of every C++ and Python function."""
    files = tree.ending(CPP + (".py",))
    kinds = ("--kinds-C++=f", "--kinds-Python=fm")
    languages = ("--languages=C++,Python", "--map-C++=+.h")
    tags = ctags(tree, files, "--fields=+ne", *kinds, *languages)
    return [
        (tag["end"] - tag["line"] + 1, tag["path"], tag["line"], tag["name"])
        for tag in tags
        if "end" in tag
    ]


def check_function_length(tree):
    """No function over 70 lines, nine in ten within 35."""
    lengths = sorted(function_lengths(tree))
    findings = [
        f"{path}:{line}: {name} has {length} lines, more than {MAX_FUNCTION_LINES}"
        for length, path, line, name in lengths
        if length > MAX_FUNCTION_LINES
    ]
    if lengths:
        p90 = lengths[(len(lengths) * 9) // 10][0]
        print(f"note: {len(lengths)} functions, nine in ten have at most {p90} lines")
        if p90 > MAX_P90_FUNCTION_LINES:
            message = f"one function in ten has {p90} lines or more, not {MAX_P90_FUNCTION_LINES}"
            findings.append(f".:1: {message}")
    return findings


def check_file_length(tree):
    """No source over 800 lines."""
    findings = []
    for path in tree.ending(SOURCES + ("BUILD",)):
        lines = tree.text(path).count("\n")
        if lines > MAX_FILE_LINES:
            findings.append(f"{path}:1: {lines} lines, more than {MAX_FILE_LINES}")
    return findings


def named_in(readme, name):
    """Whether a README names a file, directly or by x.h or x.cc (which cover x_test.cc)."""
    stem = re.sub(r"(_test|_fuzz)?\.\w+$", "", name)
    names = (name, stem + ".h", stem + ".cc", stem + ".{h,cc}")
    return any(re.search(r"(?<![\w/])" + re.escape(each) + r"(?!\w)", readme) for each in names)


def check_readmes(tree):
    """Every folder of src/ has a README.md that names each file."""
    folders = {}
    for path in tree.matching(("src/*",)):
        folder, _, name = path.rpartition("/")
        if folder != "src":
            folders.setdefault(folder, []).append(name)
    findings = []
    for folder, names in sorted(folders.items()):
        sources = [name for name in names if name.endswith(SOURCES)]
        if not sources:
            continue
        if "README.md" not in names:
            findings.append(f"{folder}/README.md:1: missing; it names each file of the folder")
            continue
        readme = tree.text(f"{folder}/README.md")
        findings += [
            f"{folder}/README.md:1: does not name {name}" for name in sources if not named_in(readme, name)
        ]
    return findings


def check_unfinished(tree):
    """The tree has no notes about unfinished work."""
    findings = []
    for path in tree.ending(SOURCES + (".md", "BUILD", ".sh")) + tree.matching(("scripts/*",)):
        text = tree.text(path)
        findings += [
            finding(path, text, match.start(), f"`{match.group()}`: finish it or drop it")
            for match in UNFINISHED.finditer(text)
        ]
    return sorted(set(findings))


def check_build_files(tree):
    """BUILD files load only from //bazel:defs.bzl and call no native rule of Bazel."""
    findings = []
    for path in tree.matching(("BUILD", "*/BUILD", "BUILD.bazel", "*/BUILD.bazel")):
        if path.startswith(("third_party/rules_cc/", "third_party/remote_coverage_tools/")):
            continue
        text = tree.text(path)
        findings += [
            finding(path, text, match.start(), f"loads {match.group(1)}: only //bazel:defs.bzl")
            for match in LOAD.finditer(text)
            if match.group(1) != "//bazel:defs.bzl"
        ]
        findings += [
            finding(path, text, match.start(), f"calls {match.group(1)}: use the rules of //bazel:defs.bzl")
            for match in RULE_CALL.finditer(text)
        ]
    return findings


def layer_of(path):
    match = re.match(r"src/(\w+)/", path)
    return match.group(1) if match else None


def check_layers(tree):
    """Includes point downward only."""
    findings = []
    for path in tree.ending(CPP):
        layer = layer_of(path)
        if layer is None or layer == "sim":
            continue
        if layer not in LAYERS:
            findings.append(f"{path}:1: src/{layer} is no layer of the design")
            continue
        for offset, header in includes(tree, path):
            used = layer_of(header)
            if used in LAYERS and LAYERS.index(used) > LAYERS.index(layer):
                message = f"src/{layer} includes {header}, which is above it"
                findings.append(finding(path, tree.text(path), offset, message))
    return findings


def check_confined_headers(tree):
    """gRPC in its rims, Asio in src/net, test helpers in tests; public headers stand alone."""
    findings = []
    for path in tree.ending(CPP):
        text = tree.text(path)
        for offset, header in includes(tree, path):
            for rule in CONFINED:
                if re.match(rule.headers, header) and not matches(path, rule.allowed):
                    findings.append(finding(path, text, offset, f"includes {header}: {rule.why}"))
            public = DROP_IN_HEADERS if path.startswith(DROP_IN_FOLDERS) else PUBLIC_HEADERS
            if path.startswith("include/") and not re.match(public, header):
                message = f"includes {header}: a public header needs only Abseil"
                findings.append(finding(path, text, offset, message))
    return findings


def check_class_size(tree):
    """No class over 60 methods, 20 fields or 1,300 lines of bodies."""
    return measures.kept(tree, ("methods", "fields", "body-lines"))


def check_folder_entries(tree):
    """No folder of src/ and python/ with more than 30 entries."""
    return measures.kept(tree, ("entries",))


def check_words(tree):
    """Comments use the words of the field: the rates of a few telling ones are within limits."""
    return measures.kept(tree, ("told-who-nobody", "if", "returns"))


def check_prose(tree):
    """Of the lines of the product's .cc files 8 to 12 in a hundred are comments."""
    return measures.kept(tree, ("prose",))


CHECKS = (
    check_format,
    check_banned_calls,
    check_function_length,
    check_file_length,
    check_readmes,
    check_unfinished,
    check_build_files,
    check_layers,
    check_confined_headers,
    check_class_size,
    check_folder_entries,
    check_words,
    check_prose,
)


def main(arguments):
    options = {each for each in arguments if each.startswith("--")}
    roots = [each for each in arguments if each not in options]
    if len(roots) > 1 or len(options) > 1 or options - {"--measure", "--lower"}:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    tree = Tree(roots[0] if roots else HERE.parents[2])
    if "--measure" in options:
        print(measures.table(tree))
        return 0
    if "--lower" in options:
        measures.lower(tree)
        return 0
    findings = [each for check in CHECKS for each in check(tree)]
    print("\n".join(findings) or f"{len(tree.paths)} files, nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
