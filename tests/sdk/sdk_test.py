"""Builds programs with the result of scripts/sdk, and with this tree as an external repository of Bazel.

usage: python3 -m tests.sdk.sdk_test FOLDER, that of scripts/sdk

The programs are built and run in a bare root: it has /usr of this machine, FOLDER as /opt/phalanx, and copies of
the examples, but nothing of this tree. The commands are those of docs/client.md, with their output. With
PHALANX_TEST_WORKSPACE=1 the other workspace compiles whole programs, and runs them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from bazel import unittest_xml
from examples.cpp.examples_test import EXPECTED

ROOT = pathlib.Path(__file__).resolve().parents[2]
SDK = pathlib.Path(sys.argv[1]).resolve()
DEADLINE_S = 600

# Makes the bare root $1, with the SDK $2 and the folder $3 as the home, and runs the script $4 there.
BARE_ROOT = """
set -e
mount -t tmpfs none "$1"
mkdir -p "$1"/{usr,dev,proc,tmp,etc/alternatives,home,opt/phalanx}
for folder in usr dev proc etc/alternatives; do mount --rbind /$folder "$1/$folder"; done
for folder in bin lib lib64; do ln -s usr/$folder "$1/$folder"; done
mount --bind "$2" "$1/opt/phalanx"
mount --bind "$3" "$1/home"
exec chroot "$1" /usr/bin/env --ignore-environment --chdir=/home PATH=/usr/bin HOME=/home XDG_RUNTIME_DIR=/tmp \
  bash -euc "$4"
"""
# The exports of libphalanx.so: the functions of c.h and of the C++ headers.
FUNCTIONS = "|".join(
    re.findall(
        r"^(?!using)[\w:<>]+ (\w+)\(",
        "".join((ROOT / "include" / "phalanx" / f"{name}.h").read_text() for name in ("elements", "collectives")),
        re.MULTILINE,
    )
)
PUBLIC = re.compile(
    rf"phx_\w+$|phalanx::(({FUNCTIONS})\(|(ObjectId|Buffer|WritableBuffer|ObjectStream|Client|spmd::Session|Future<.*>)::~?\w+"
    r"|ps::((Server|Worker|AnyTable)::~?\w+|internal::(RowOf|ResizeRow|RunOf)\(|(Check|SyncName|SplitName|UpdateName)\())"
)
RABIT = re.compile(r"Rabit\w+$|rabit::engine::library::\w+\(")
PS_LITE = re.compile(r"ps::(Customer|Environment|Postoffice|Van|Node|Control|Meta|Message)::")
SOME_TARGETS = [
    f"@phalanx//{label}" for label in ("protos/phalanx/v1:types_proto", "src/common/ids:object_id", "src/cli:phalanx")
]
NEEDED = re.compile(r"libabsl_\w+\.so\.\d+|lib(stdc\+\+|gcc_s|m|c)\.so\.6|libgcc_s\.so\.1|ld-linux-x86-64\.so\.2")


def output(*command, **options):
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options
    )
    if ended.returncode != 0:
        raise AssertionError(f"{command} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def namespace():
    """Returns the command that makes a mount namespace."""
    for command in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        if subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL).returncode == 0:
            return command
    raise unittest.SkipTest("mount namespaces are not permitted here")


def blocks(title):
    """Returns the fenced blocks of a section of docs/client.md, as pairs of a language and a text."""
    section = (ROOT / "docs" / "client.md").read_text().split(f"\n### {title}\n")[1].split("\n## ")[0].split("\n### ")[0]
    return re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def files_of(title):
    """Returns the files that a section shows, by their names: the blocks that begin with "# NAME"."""
    named = [re.match(r"# (\S+)\n", text) for _, text in blocks(title)]
    return {match.group(1): match.string for match in named if match}


def transcript_of(title):
    """Returns the commands of a section and their output, which it shows after "$ "."""
    lines = "".join(text for language, text in blocks(title) if language == "console").splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    return commands, [line for line in lines if not line.startswith("$ ")]


class SdkTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="phalanx-sdk-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.home = self.folder / "home"
        shutil.copytree(ROOT / "examples", self.home, ignore=shutil.ignore_patterns("__pycache__", "BUILD", "*.py"))
        (self.folder / "root").mkdir()

    def in_bare_root(self, script):
        """Runs a script with the examples in its folder, and returns what it prints."""
        arguments = [str(self.folder / "root"), str(SDK), str(self.home), f"test ! -e '{ROOT}'\n{script}"]
        return output(*namespace(), "bash", "-c", BARE_ROOT, "bare-root", *arguments)

    def check_transcript(self, title, folder):
        """Runs what a section of the guide shows, in the folder of an example."""
        for name, text in files_of(title).items():
            (self.home / folder / name).write_text(text)
        commands, expected = transcript_of(title)
        printed = self.in_bare_root("\n".join([f"cd {folder}", *commands]))
        self.assertTrue(expected)
        # What the tools print is left out of the guide.
        self.assertEqual([line for line in printed.splitlines() if line in expected], expected, printed)

    def test_cmake_builds_the_examples(self):
        for folder in ("cpp", "c"):
            self.in_bare_root(
                f"cd {folder}; cmake -B build -DCMAKE_PREFIX_PATH=/opt/phalanx; cmake --build build --parallel"
            )
        for name, expected in EXPECTED.items():
            with self.subTest(name):
                self.assertEqual(self.in_bare_root(f"cpp/build/{name}"), expected)
        self.assertEqual(self.in_bare_root("c/build/quickstart"), "11 22 33\n")

    def test_what_the_guide_shows_for_cmake(self):
        self.check_transcript("With CMake", "cpp")

    def test_what_the_guide_shows_for_pkg_config(self):
        self.check_transcript("With pkg-config", "cpp")

    def test_what_the_guide_shows_for_c(self):
        self.check_transcript("From C", "c")

    def test_the_archive_makes_a_program_that_needs_no_library_of_phalanx(self):
        (self.home / "cpp" / "CMakeLists.txt").write_text(
            files_of("With CMake")["CMakeLists.txt"].replace("phalanx::phalanx", "phalanx::static")
        )
        printed = self.in_bare_root(
            "cmake -S cpp -B build -DCMAKE_PREFIX_PATH=/opt/phalanx >&2; cmake --build build >&2\n"
            "PATH=/opt/phalanx/bin:$PATH build/quickstart; readelf -d build/quickstart"
        )
        self.assertTrue(printed.startswith(EXPECTED["quickstart"]), printed)
        self.assertNotIn("libphalanx", printed)

    def test_programs_of_rabit(self):
        shutil.copy(ROOT / "src" / "rabit" / "testing" / "calls.cc", self.home)
        for link in (
            "$(pkg-config --cflags --libs rabit) -Wl,-rpath,/opt/phalanx/lib",
            # The archive loads libphalanx.so by the program's run path, or by LD_LIBRARY_PATH.
            "-I/opt/phalanx/include /opt/phalanx/lib/librabit.a -Wl,-rpath,/opt/phalanx/lib",
            "-I/opt/phalanx/include /opt/phalanx/lib/librabit_mock.a",
            "-I/opt/phalanx/include -L/opt/phalanx/lib -lrabit_mock",
        ):
            with self.subTest(link):
                printed = self.in_bare_root(
                    "export PKG_CONFIG_PATH=/opt/phalanx/lib/pkgconfig\n"
                    f"g++ -std=c++11 -Wall -Wextra -Werror calls.cc -o calls {link}\n"
                    f"{'' if 'rpath' in link else 'export LD_LIBRARY_PATH=/opt/phalanx/lib'}\n"
                    "/opt/phalanx/bin/phalanx launch -n 2 -- ./calls basic"
                )
                sums = [f"[worker{rank}] [{rank}] sum 2 4 6" for rank in range(2)]
                self.assertEqual(sorted(line for line in printed.splitlines() if "sum" in line), sums)

    def test_programs_of_ps_lite(self):
        testing = ROOT / "src" / "ps_lite" / "testing"
        shutil.copytree(testing, self.home / "src" / "ps_lite" / "testing")
        for link in (
            "$(pkg-config --cflags --libs ps-lite) -Wl,-rpath,/opt/phalanx/lib",
            "-I/opt/phalanx/include /opt/phalanx/lib/libps.a -Wl,-rpath,/opt/phalanx/lib",
        ):
            with self.subTest(link):
                printed = self.in_bare_root(
                    "export PKG_CONFIG_PATH=/opt/phalanx/lib/pkgconfig\n"
                    f"g++ -std=c++11 -Wall -Wextra -Werror -pthread -I. src/ps_lite/testing/kv_app.cc -o kv_app {link}\n"
                    "export DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=1 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=8000\n"
                    "pids=; for role in scheduler server; do DMLC_ROLE=$role ./kv_app & pids=\"$pids $!\"; done\n"
                    "DMLC_ROLE=worker ./kv_app 2>&1\n"
                    "for pid in $pids; do wait $pid; done"
                )
                self.assertIn("worker 0: ok", printed)

    def test_the_libraries_for_other_systems_export_their_functions_alone(self):
        for name, interface, functions in (
            ("librabit.so", RABIT, ("RabitAllreduce", "rabit::engine::library::Init(")),
            ("librabit_mock.so", RABIT, ("RabitAllreduce", "rabit::engine::library::TypeSize(")),
            ("libps.so", PS_LITE, ("ps::Postoffice::Start(", "ps::Van::Send(")),
        ):
            symbols = output("nm", "--dynamic", "--demangle", "--defined-only", str(SDK / "lib" / name)).splitlines()
            exported = [line.split(maxsplit=2)[2] for line in symbols]
            self.assertEqual([each for each in exported if not interface.match(each)], [])
            for each in functions:
                self.assertTrue(any(symbol.startswith(each) for symbol in exported), each)
            dynamic = output("readelf", "--dynamic", str(SDK / "lib" / name))
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
            self.assertEqual([each for each in needed if not NEEDED.fullmatch(each) or "absl" in each], [])

    def test_cmake_refuses_other_versions_and_unknown_components(self):
        asks = "cmake_minimum_required(VERSION 3.18)\nproject(asks C)\nfind_package(phalanx {} REQUIRED)\n"
        for wanted, problem in (
            ("0.2", 'requested version "0.2"'),
            ("1.0", 'requested version "1.0"'),
            ("0.1 COMPONENTS rust", "no component 'rust'"),
        ):
            with self.subTest(wanted):
                (self.home / "CMakeLists.txt").write_text(asks.format(wanted))
                with self.assertRaisesRegex(AssertionError, re.escape(problem)):
                    self.in_bare_root("cmake -B asks -DCMAKE_PREFIX_PATH=/opt/phalanx")

    def test_the_library_exports_the_public_functions_alone(self):
        library = SDK / "lib" / "libphalanx.so"
        symbols = output("nm", "--dynamic", "--demangle", "--defined-only", str(library)).splitlines()
        exported = [line.split(maxsplit=2)[2] for line in symbols]
        self.assertEqual([name for name in exported if not PUBLIC.match(name)], [])
        names = ("phx_connect", "phalanx::Client::Connect", "phalanx::spmd::Session::Join", "phalanx::ps::Server::Run", "phalanx::ps::Worker::Join")
        # What the templates of the public headers call.
        rows = (f"phalanx::ps::internal::{name}(" for name in ("RowOf", "ResizeRow", "RunOf"))
        for each in (*names, *rows, *(f"phalanx::{name}(" for name in FUNCTIONS.split("|"))):
            self.assertTrue(any(name.startswith(each) for name in exported), each)

    def test_the_library_needs_abseil_and_the_compilers_libraries_alone(self):
        dynamic = output("readelf", "--dynamic", str(SDK / "lib" / "libphalanx.so"))
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        self.assertEqual([name for name in needed if not NEEDED.fullmatch(name)], [])
        # The soname is a link to the library.
        self.assertTrue((SDK / "lib" / re.search(r"\(SONAME\).*\[(.*)\]", dynamic).group(1)).is_symlink())
        undefined = output("nm", "--undefined-only", "--demangle", str(SDK / "lib" / "libphalanx.a"))
        self.assertNotRegex(undefined, r"U (grpc|google::protobuf|asio|spdlog)")

    def test_the_executable_needs_the_c_library_alone(self):
        dynamic = output("readelf", "--dynamic", str(SDK / "bin" / "phalanx"))
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})
        self.assertIn("phalanx", self.in_bare_root("/opt/phalanx/bin/phalanx --version"))

    def test_shells_and_man_find_their_files(self):
        for name in ("man/man1/phalanx-put.1", "bash-completion/completions/phalanx", "zsh/site-functions/_phalanx",
                     "fish/vendor_completions.d/phalanx.fish"):
            self.assertIn("phalanx", (SDK / "share" / name).read_text(), name)

    def test_no_file_names_the_folder_where_it_was_made(self):
        for path in SDK.rglob("*"):
            if path.is_file():
                self.assertNotIn(str(ROOT).encode(), path.read_bytes(), path)
                self.assertNotIn(str(SDK).encode(), path.read_bytes(), path)

    def test_a_folder_that_cannot_be_written_is_an_error_before_the_build(self):
        command = [ROOT / "scripts" / "sdk", "/proc/phalanx"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("sdk: /proc/phalanx cannot be written", ended.stderr)
        self.assertNotIn("Analyz", ended.stderr)

    def test_headers_of_another_dmlc_core_stay_as_they_are(self):
        header = self.folder / "include" / "dmlc" / "io.h"
        header.parent.mkdir(parents=True)
        header.write_text("// of dmlc-core\n")
        command = [ROOT / "scripts" / "sdk", self.folder]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertIn(f"sdk: {header} is that of a dmlc-core", ended.stderr)
        self.assertEqual(header.read_text(), "// of dmlc-core\n")

    def test_another_workspace_of_bazel_builds_the_clients(self):
        workspace = self.folder / "workspace"
        # What Bazel builds goes with the folder.
        base = self.folder / "base"
        workspace.mkdir()
        for name in ("cpp/quickstart.cc", "c/quickstart.c"):
            shutil.copy(ROOT / "examples" / name, workspace)
        for name, text in files_of("With Bazel").items():
            (workspace / name).write_text(text.replace("/home/me/phalanx", str(ROOT)))
        with open(workspace / ".bazelrc", "a", encoding="utf-8") as settings:
            settings.write(f"startup --output_base={base}\n")
        bazel = dict(os.environ, PHALANX_WORKSPACE=str(workspace))
        try:
            # The objects of a few targets need all labels, generated headers and options; whole programs take minutes.
            some = ["--output_groups=compilation_outputs", *SOME_TARGETS]
            whole = "PHALANX_TEST_WORKSPACE" in os.environ
            output(str(ROOT / "scripts" / "bazel"), "build", *([] if whole else some), "//...", env=bazel)
            if not whole:
                return
            environment = {"PATH": os.environ["PATH"], "PHALANX_BINARY": str(SDK / "bin" / "phalanx")}
            for name, expected in (("quickstart", EXPECTED["quickstart"]), ("quickstart_c", "11 22 33\n")):
                self.assertEqual(output(str(workspace / "bazel-bin" / name), env=environment), expected)
        finally:
            output(str(ROOT / "scripts" / "bazel"), "shutdown", env=bazel)
            # Bazel makes its folders read-only.
            output("chmod", "--recursive", "u+w", str(base))


if __name__ == "__main__":
    unittest_xml.main()
