#!/usr/bin/env python3
"""Checks what a machine can check of the house style, over the whole tree.

usage: tests/tidy/tidy.py [ROOT]

Each check is a function from a Tree to a list of findings, "path:line: what is wrong". CHECKS names
them all; what is allowed where is in the tables at the top. tidy_test.py shows each of them catching
a small offender, tree_test.py runs them over the real tree.
"""

import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

MAX_FUNCTION_LINES = 70
MAX_P90_FUNCTION_LINES = 35
MAX_FILE_LINES = 800

CPP = (".cc", ".h")
SOURCES = CPP + (".py", ".bzl", ".proto")
CLANG_FORMAT = "clang-format-14"
CTAGS = "ctags-universal"

# A folder of src/ may include from itself and from those before it. `sim` may include everything,
# and nothing but tests may include it.
LAYERS = ("common", "net", "directory", "object_store", "collectives", "runtime", "python")

TESTS = ("tests/*", "*_test.cc", "*_fuzz.cc", "*_fuzz.h", "*_conformance.h", "*_conformance.cc")
TESTS += ("src/sim/*", "src/*/testing/*", "benchmarks/*")


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
        allowed=("tests/process/jumping_clock.cc",),
    ),
    Ban(
        r"\bCLOCK_(REALTIME|TAI)|\bGPR_CLOCK_REALTIME\b|\bhigh_resolution_clock\b|\bGetCurrentTimeNanos\b",
        "wall time jumps: only a node's incarnation begins with it",
        allowed=("src/runtime/node.cc", "tests/process/jumping_clock.cc"),
    ),
    Ban(
        r"\bstd::(thread|jthread|async)\b(?!::)",
        "only the rims own threads",
        allowed=TESTS + ("src/common/thread*", "src/common/populate.cc", "src/net/event_loop*", "src/net/tcp/resolver*", "src/object_store/memfd_memory*", "examples/*", "src/runtime/*"),
    ),
    Ban(
        r"\bstd::(recursive_|timed_|shared_)?mutex\b|\bstd::condition_variable|\babsl::Mutex\b",
        "take Mutex and CondVar (src/common/mutex.h): their annotations are checked",
        allowed=TESTS + ("src/common/mutex.h",),
    ),
    Ban(r"\busing\s+namespace\b", "a header must not import names", files=("*.h",)),
)


@dataclasses.dataclass(frozen=True)
class Confinement:
    """Headers that only some files may include."""

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
        r"src/sim/|src/\w+/testing/",
        TESTS,
        "what is for tests is included by tests alone",
    ),
)

# What the public headers may include: a user compiles them with Abseil and nothing else of ours.
PUBLIC_HEADERS = r"absl/|phalanx/(?!v\d)|[a-z_]+$|std(def|int)\.h$|(sys|linux)/"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([^>"]+)[>"]', re.MULTILINE)
RULE_CALL = re.compile(r"^(native\.\w+|(cc|py|proto|java|sh)_\w+|new_\w+|bind)\(", re.MULTILINE)
LOAD = re.compile(r'^load\(\s*"([^"]+)"', re.MULTILINE)
NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)\""""
    r"""|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
NOT_PYTHON_CODE = re.compile(
    r"""\"{3}.*?\"{3}|#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
# Written so that this file does not contain the words.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK|[Ff]or" r" now)\b")


class Tree:
    """The files under a root that belong to the project, read once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.paths = sorted(self._walk())
        self._texts = {}

    def _walk(self):
        for folder, subfolders, names in os.walk(self.root):
            subfolders[:] = [
                name
                for name in subfolders
                if not name.startswith((".", "bazel-")) and name != "__pycache__"
            ]
            for name in names:
                yield (pathlib.Path(folder) / name).relative_to(self.root).as_posix()

    def text(self, path):
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(errors="replace")
        return self._texts[path]

    def matching(self, patterns):
        return [path for path in self.paths if matches(path, patterns)]

    def ending(self, suffixes):
        return [path for path in self.paths if path.endswith(suffixes)]


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def code_of(path, text):
    """The text with comments and literals blanked, each line still in its place."""
    pattern = NOT_CODE if path.endswith(CPP) else NOT_PYTHON_CODE
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def finding(path, text, offset, message):
    return f"{path}:{text.count(chr(10), 0, offset) + 1}: {message}"


def includes(tree, path):
    """(offset, header) of every include of a file."""
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
    """No sleeping, no randomness of one's own, no wall clock, no stray threads."""
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
    """(lines, path, first line, name) of every C++ and Python function."""
    files = tree.ending(CPP + (".py",))
    if not files:
        return []
    command = [CTAGS, "--output-format=json", "--fields=+ne", "--kinds-C++=f", "--kinds-Python=fm"]
    command += ["--languages=C++,Python", "--map-C++=+.h", "-f", "-", "-L", "-"]
    listing = "\n".join(files)
    run = subprocess.run(
        command, cwd=tree.root, input=listing, capture_output=True, text=True, check=True
    )
    tags = [json.loads(line) for line in run.stdout.splitlines()]
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
    """Whether a README names a file, itself or through x.h or x.cc (which cover x_test.cc)."""
    stem = re.sub(r"(_test|_fuzz)?\.\w+$", "", name)
    names = (name, stem + ".h", stem + ".cc", stem + ".{h,cc}")
    return any(re.search(r"(?<![\w/])" + re.escape(each) + r"(?!\w)", readme) for each in names)


def check_readmes(tree):
    """Every folder of src/ says in its README.md what each file is."""
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
    """Nothing is left for later in the text of the tree."""
    findings = []
    for path in tree.ending(SOURCES + (".md", "BUILD", ".sh")) + tree.matching(("scripts/*",)):
        text = tree.text(path)
        findings += [
            finding(path, text, match.start(), f"`{match.group()}`: finish it or drop it")
            for match in UNFINISHED.finditer(text)
        ]
    return sorted(set(findings))


def check_build_files(tree):
    """BUILD files load from //bazel:defs.bzl alone and call no rule of Bazel's own."""
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
            if path.startswith("include/") and not re.match(PUBLIC_HEADERS, header):
                message = f"includes {header}: a public header needs only Abseil"
                findings.append(finding(path, text, offset, message))
    return findings


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
)


def main(root):
    tree = Tree(root)
    findings = [each for check in CHECKS for each in check(tree)]
    print("\n".join(findings) or f"{len(tree.paths)} files, nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve()
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else here.parents[2]))
