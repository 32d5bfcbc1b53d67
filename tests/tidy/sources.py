"""The files of a tree: what is code in them and what is comment, and what ctags finds."""

import fnmatch
import json
import os
import pathlib
import re
import subprocess

CPP = (".cc", ".h")
CTAGS = "ctags-universal"

NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)\""""
    r"""|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
NOT_PYTHON_CODE = re.compile(
    r"""\"{3}.*?\"{3}|#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
FENCED = re.compile(r"```.*?```", re.DOTALL)


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
                if not name.startswith((".", "bazel-")) and name not in ("__pycache__", "dist")
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


def comments_of(path, text):
    """The comments of a file in one string: of Markdown its prose, of Python its docstrings too."""
    if path.endswith(".md"):
        return FENCED.sub("", text)
    python = path.endswith(".py")
    pattern, openers = (NOT_PYTHON_CODE, ("#", '"""')) if python else (NOT_CODE, ("//", "/*"))
    spans = (match.group() for match in pattern.finditer(text))
    return "\n".join(span for span in spans if span.startswith(openers))


def ctags(tree, files, *options):
    """The tags of some files, as dictionaries, in the order of the files."""
    if not files:
        return []
    command = [CTAGS, "--output-format=json", "--sort=no", *options, "-f", "-", "-L", "-"]
    listing = "\n".join(files)
    run = subprocess.run(
        command, cwd=tree.root, input=listing, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in run.stdout.splitlines()]
