"""Programs for both generations of ps-lite, compiled as such programs are: as C++11, without Bazel, and linked with the
library alone."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from bazel import unittest_xml

ROOT = pathlib.Path.cwd()
INCLUDE = ROOT / "include"
LIBRARIES = ROOT / "src" / "ps_lite"
TESTING = LIBRARIES / "testing"
DEADLINE_S = 300
STRICT = ["-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"]
COMPILERS = [each for each in ("g++", "clang++-14") if shutil.which(each)]
ALONE = {key: value for key, value in os.environ.items() if not key.startswith(("PHALANX_", "DMLC_", "PS_"))}
EXPORTED = re.compile(r"ps::(Customer|Environment|Postoffice|Van|Node|Control|Meta|Message)::")


class HeadersTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="phalanx-ps-lite-"))
        self.addCleanup(shutil.rmtree, self.folder)
        # As scripts/sdk installs them.
        for name in ("ps", "dmlc"):
            shutil.copytree(INCLUDE / name, self.folder / "include" / name)

    def run_command(self, *command, expect=0, **options):
        ended = subprocess.run(
            [str(each) for each in command], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options
        )
        self.assertEqual(ended.returncode, expect, f"{command}:\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def compile(self, compiler, source, *arguments):
        output = self.folder / "program"
        self.run_command(compiler, *STRICT, f"-I{self.folder / 'include'}", TESTING / "programs" / source, *arguments,
                         "-o", output)
        return output

    def test_programs_of_both_generations(self):
        shared = [f"-L{LIBRARIES}", "-lps", f"-Wl,-rpath,{LIBRARIES}"]
        for name in ("first_generation", "second_generation"):
            for compiler, link in [(each, [LIBRARIES / "libps.a"]) for each in COMPILERS] + [("g++", shared)]:
                with self.subTest(compiler=compiler, program=name, link=link):
                    program = self.compile(compiler, f"{name}.cc", *link)
                    self.assertEqual(self.run_command(program, env=ALONE), "ok\n")

    def test_the_ports_of_its_tests(self):
        for source in sorted(TESTING.glob("*.cc")):
            with self.subTest(source=source.name):
                self.run_command("g++", *STRICT, f"-I{self.folder / 'include'}", f"-I{ROOT}", "-fsyntax-only", source)

    def test_keys_of_32_bits(self):
        source = self.folder / "keys.cc"
        source.write_text(
            '#include "ps/ps.h"\n'
            'static_assert(sizeof(ps::Key) == 4, "");\n'
            "int main() { return ps::Postoffice::Get()->GetServerKeyRanges().back().end() == ps::kMaxKey ? 0 : 1; }\n"
        )
        program = self.folder / "keys"
        self.run_command("g++", *STRICT, "-DUSE_KEY32=1", f"-I{self.folder / 'include'}", source, LIBRARIES / "libps.a",
                         "-o", program)
        variables = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "3", "DMLC_PS_ROOT_URI": "h",
                     "DMLC_PS_ROOT_PORT": "1"}
        self.run_command(program, env={**ALONE, **variables})

    def test_each_header_stands_alone(self):
        for header in sorted((self.folder / "include").rglob("*.h")):
            for compiler in COMPILERS:
                with self.subTest(header=header.name, compiler=compiler):
                    source = self.folder / "header.cc"
                    source.write_text(f'#include "{header}"\n#include "{header}"\n')
                    self.run_command(compiler, *STRICT, f"-I{self.folder / 'include'}", "-fsyntax-only", source)

    def test_the_headers_name_nothing_of_ours(self):
        for header in (self.folder / "include").rglob("*.h"):
            lines = [line for line in header.read_text().splitlines() if line.startswith("#include")]
            self.assertEqual([line for line in lines if "phalanx" in line or "absl" in line], [], header)

    def test_the_shared_library_exports_the_interface_alone(self):
        symbols = self.run_command("nm", "--dynamic", "--demangle", "--defined-only", LIBRARIES / "libps.so").splitlines()
        exported = [line.split(maxsplit=2)[2] for line in symbols]
        self.assertEqual([each for each in exported if not EXPORTED.match(each)], [])
        self.assertTrue(any(each.startswith("ps::Postoffice::Start(") for each in exported), exported)


if __name__ == "__main__":
    unittest_xml.main()
