"""Programs for both generations of Rabit, compiled as such programs are: as C++11, without Bazel, and linked with the
library alone."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from bazel import unittest_xml

INCLUDE = pathlib.Path("include").resolve()
LIBRARIES = pathlib.Path("src/rabit").resolve()
TESTING = LIBRARIES / "testing"
DEADLINE_S = 300
STRICT = ["-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror"]
COMPILERS = [each for each in ("g++", "clang++-14") if shutil.which(each)]
ALONE = {key: value for key, value in os.environ.items() if not key.startswith(("PHALANX_", "DMLC_", "rabit_"))}


class HeadersTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="phalanx-rabit-"))
        self.addCleanup(shutil.rmtree, self.folder)
        # As scripts/sdk installs them.
        for name in ("rabit", "dmlc"):
            shutil.copytree(INCLUDE / name, self.folder / "include" / name)

    def run_command(self, *command, expect=0, **options):
        ended = subprocess.run(
            [str(each) for each in command], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options
        )
        self.assertEqual(ended.returncode, expect, f"{command}:\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def compile(self, compiler, program, *arguments):
        output = self.folder / "program"
        self.run_command(compiler, *STRICT, "-O1", TESTING / "programs" / program, *arguments, "-o", output)
        return output

    def headers(self):
        return f"-I{self.folder / 'include'}"

    def test_programs_of_both_generations(self):
        for compiler in COMPILERS:
            for name in ("first_generation", "second_generation"):
                for library in ("librabit.a", "librabit_mock.a"):
                    with self.subTest(compiler=compiler, program=name, library=library):
                        program = self.compile(compiler, f"{name}.cc", self.headers(), LIBRARIES / library)
                        self.assertEqual(self.run_command(program, env=ALONE), "ok\n")

    def test_the_shared_library(self):
        program = self.compile("g++", "first_generation.cc", self.headers(), f"-L{LIBRARIES}", "-lrabit",
                               f"-Wl,-rpath,{LIBRARIES}")
        self.assertEqual(self.run_command(program, env=ALONE), "ok\n")

    def test_a_program_with_its_own_dmlc_core(self):
        own = f"-I{TESTING / 'dmlc_core'}"
        for folders in ([own, self.headers()], [self.headers(), own]):
            with self.subTest(folders=folders):
                program = self.compile("g++", "own_dmlc_core.cc", *folders, LIBRARIES / "librabit.a")
                self.assertEqual(self.run_command(program, env=ALONE), "ok\n")

    def test_the_archive_in_a_shared_object(self):
        source = self.folder / "plugin.cc"
        source.write_text("#include <rabit/c_api.h>\nextern \"C\" int Tag() { return RabitLinkTag(); }\n")
        plugin = self.folder / "plugin.so"
        self.run_command("g++", *STRICT, "-shared", "-fPIC", self.headers(), source, LIBRARIES / "librabit.a",
                         "-Wl,--no-undefined", "-o", plugin)
        loaded = ctypes.CDLL(str(plugin))
        self.assertEqual((loaded.Tag(), loaded.RabitGetWorldSize(), loaded.RabitGetRank()), (0, 1, 0))

    def test_each_header_stands_alone(self):
        for header in sorted((self.folder / "include").rglob("*.h")):
            for compiler in COMPILERS:
                with self.subTest(header=header.name, compiler=compiler):
                    source = self.folder / "header.cc"
                    source.write_text(f'#include "{header}"\n#include "{header}"\n')
                    self.run_command(compiler, *STRICT, self.headers(), "-fsyntax-only", source)
        self.run_command("gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-x", "c",
                         self.folder / "include" / "rabit" / "c_api.h")

    def test_the_headers_name_nothing_of_ours(self):
        for header in (self.folder / "include").rglob("*.h"):
            lines = [line for line in header.read_text().splitlines() if line.startswith("#include")]
            self.assertEqual([line for line in lines if "phalanx" in line or "absl" in line], [], header)


if __name__ == "__main__":
    unittest_xml.main()
