"""Each check of tidy.py reports a small violation and accepts a similar valid file."""

import pathlib
import shutil
import tempfile
import unittest

from bazel import unittest_xml
from tests.tidy import tidy

STYLE = "BasedOnStyle: Google\nColumnLimit: 100\n"


class TidyTest(unittest.TestCase):
    def findings(self, check, files):
        """Return the findings of a check for a tree of {path: text}."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {".clang-format": STYLE, **files}.items():
                target = pathlib.Path(root) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            return check(tidy.Tree(root))

    def assert_caught(self, check, files, place):
        findings = self.findings(check, files)
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(place + ": "), findings)

    def assert_clean(self, check, files):
        self.assertEqual(self.findings(check, files), [])

    def assert_banned(self, line, path="src/net/a.cc"):
        with self.subTest(line=line):
            self.assert_caught(tidy.check_banned_calls, {path: f"\n{line}\n"}, f"{path}:2")

    @unittest.skipIf(shutil.which(tidy.CLANG_FORMAT) is None, "clang-format is not installed")
    def test_an_unformatted_file_is_caught(self):
        files = {"src/net/a.cc": "int F() { return 1; }\n", "src/net/b.cc": "int  F( ){return 1;}\n"}
        self.assert_caught(tidy.check_format, files, "src/net/b.cc:1")

    def test_sleeping_is_caught_in_every_spelling(self):
        self.assert_banned("std::this_thread::sleep_for(1s);")
        self.assert_banned("usleep(5);")
        self.assert_banned("absl::SleepFor(absl::Seconds(1));")
        self.assert_banned("  sleep(1);")
        self.assert_banned("time.sleep(1)", "tests/process/a_test.py")

    def test_randomness_and_wall_clocks_are_caught(self):
        self.assert_banned("std::random_device seed;")
        self.assert_banned("int x = rand();")
        self.assert_banned("auto now = std::chrono::system_clock::now();")
        self.assert_banned("auto now = absl::Now();")
        self.assert_banned("clock_gettime(CLOCK_REALTIME, &now);")
        self.assert_banned("clock_gettime(CLOCK_REALTIME_COARSE, &now);")
        self.assert_clean(
            tidy.check_banned_calls, {"src/node/node.cc": "clock_gettime(CLOCK_REALTIME, &now);\n"}
        )

    def test_a_thread_is_caught_in_a_core_and_allowed_in_a_rim(self):
        self.assert_banned("std::thread worker([] {});", "src/directory/directory_core.cc")
        self.assert_clean(tidy.check_banned_calls, {"src/cli/main.cc": "std::thread t;\n"})
        self.assert_clean(tidy.check_banned_calls, {"src/net/a.cc": "std::thread::id owner;\n"})

    def test_a_lock_without_annotations_is_caught(self):
        self.assert_banned("std::mutex mu_;")
        self.assert_banned("absl::Mutex mu_;", "src/node/node.h")

    def test_using_namespace_is_caught_in_a_header_only(self):
        self.assert_banned("using namespace std;", "src/net/a.h")
        self.assert_clean(tidy.check_banned_calls, {"src/net/a.cc": "using namespace std;\n"})

    def test_banned_words_in_comments_literals_and_longer_names_are_no_calls(self):
        text = "\n".join((
            "// usleep(1) would be wrong here",
            "/* sleep_for */",
            'Log("usleep(1)"); Log(R"(rand())");',
            "const int kSize = 65'536; const char c = '\\'';",
            "core.random(); Brand(); operand(1);",
        ))
        self.assert_clean(tidy.check_banned_calls, {"src/net/a.cc": text})

    def test_a_function_of_71_lines_is_caught_and_one_of_70_is_not(self):
        def function(lines):
            return "int F() {\n" + "  G();\n" * (lines - 2) + "}\n"

        short = "int S() { return 1; }\n" * 20
        files = {"src/net/a.cc": short + function(71)}
        self.assert_caught(tidy.check_function_length, files, "src/net/a.cc:21")
        self.assert_clean(tidy.check_function_length, {"src/net/a.cc": short + function(70)})

    def test_a_long_method_in_a_header_and_a_long_test_are_caught(self):
        short = "int S() { return 1; }\n" * 20
        body = "  G();\n" * 80
        files = {"src/net/a.h": short + "class A {\n  int F() {\n" + body + "  }\n};\n"}
        self.assert_caught(tidy.check_function_length, files, "src/net/a.h:22")
        files = {"src/net/a_test.cc": short + "TEST(A, B) {\n" + body + "}\n"}
        self.assert_caught(tidy.check_function_length, files, "src/net/a_test.cc:21")

    def test_a_tree_of_middling_functions_is_caught_by_the_ninth_decile(self):
        function = "int F() {\n" + "  G();\n" * 40 + "}\n"
        short = "int S() { return 1; }\n" * 8
        self.assert_caught(tidy.check_function_length, {"src/net/a.cc": short + function * 2}, ".:1")

    def test_a_file_of_801_lines_is_caught(self):
        self.assert_caught(tidy.check_file_length, {"src/net/a.cc": "\n" * 801}, "src/net/a.cc:1")
        self.assert_clean(tidy.check_file_length, {"src/net/a.cc": "\n" * 800, "a.md": "\n" * 900})

    def test_a_folder_without_readme_and_a_file_it_forgets_are_caught(self):
        readme = "src/net/README.md"
        self.assert_caught(tidy.check_readmes, {"src/net/a.cc": ""}, readme + ":1")
        files = {f"src/net/a{suffix}": "" for suffix in (".h", ".cc", "_test.cc")}
        files[readme] = "- `a.h`: one line\n"
        self.assert_clean(tidy.check_readmes, files)
        self.assert_caught(tidy.check_readmes, {**files, "src/net/data.h": ""}, readme + ":1")

    def test_unfinished_work_is_caught_in_code_and_in_docs(self):
        word = "TO" + "DO"
        self.assert_caught(tidy.check_unfinished, {"src/net/a.cc": f"\n// {word}: it\n"}, "src/net/a.cc:2")
        self.assert_caught(tidy.check_unfinished, {"docs/a.md": f"{word}\n"}, "docs/a.md:1")
        self.assert_clean(tidy.check_unfinished, {"src/net/a.cc": "int " + word + "S;\n"})

    def test_a_build_file_that_loads_or_calls_other_rules_is_caught(self):
        house = 'load("//bazel:defs.bzl", "phalanx_cc_library")\nphalanx_cc_library(\n)\n'
        self.assert_clean(tidy.check_build_files, {"src/net/BUILD": house})
        foreign = house + 'load("@rules_cc//cc:defs.bzl", "cc_library")\n'
        self.assert_caught(tidy.check_build_files, {"src/net/BUILD": foreign}, "src/net/BUILD:4")
        native = house + "cc_library(\n)\n"
        self.assert_caught(tidy.check_build_files, {"src/net/BUILD": native}, "src/net/BUILD:4")

    def test_an_include_that_points_upward_is_caught(self):
        up = '#include <vector>\n#include "src/directory/b.h"\n'
        self.assert_caught(tidy.check_layers, {"src/net/a.h": up}, "src/net/a.h:2")
        self.assert_clean(tidy.check_layers, {"src/node/a.h": up, "src/sim/a.h": up})
        self.assert_caught(tidy.check_layers, {"src/extras/a.h": ""}, "src/extras/a.h:1")

    def test_grpc_outside_its_rims_is_caught(self):
        grpc = "#include <grpcpp/grpcpp.h>\n"
        core = "src/directory/directory_core.cc"
        self.assert_caught(tidy.check_confined_headers, {core: grpc}, core + ":1")
        self.assert_clean(tidy.check_confined_headers, {"src/directory/grpc_service.cc": grpc})
        stub = '#include "phalanx/v1/directory.grpc.pb.h"\n'
        self.assert_caught(tidy.check_confined_headers, {core: stub}, core + ":1")

    def test_asio_outside_net_and_test_helpers_in_production_are_caught(self):
        asio = "#include <asio.hpp>\n"
        self.assert_caught(tidy.check_confined_headers, {"src/node/a.cc": asio}, "src/node/a.cc:1")
        self.assert_clean(tidy.check_confined_headers, {"src/net/asio_loop.cc": asio})
        helper = '#include "src/common/testing/b.h"\n'
        self.assert_caught(tidy.check_confined_headers, {"src/net/a.cc": helper}, "src/net/a.cc:1")
        self.assert_clean(tidy.check_confined_headers, {"src/net/a_test.cc": helper})

    def test_a_public_header_that_needs_the_sources_is_caught(self):
        path = "include/phalanx/client.h"
        decent = '#include <memory>\n#include "absl/status/statusor.h"\n#include "phalanx/id.h"\n'
        self.assert_clean(tidy.check_confined_headers, {path: decent})
        inner = decent + '#include "src/common/ids/ids.h"\n'
        self.assert_caught(tidy.check_confined_headers, {path: inner}, path + ":4")

    def test_a_header_for_programs_of_rabit_that_needs_more_than_these_have_is_caught(self):
        path = "include/rabit/rabit.h"
        decent = '#include <vector>\n#include "dmlc/io.h"\n#include "internal/rabit-inl.h"\n#include "../rabit.h"\n'
        self.assert_clean(tidy.check_confined_headers, {path: decent})
        for inner in ("absl/strings/string_view.h", "phalanx/c.h", "src/rabit/engine.h"):
            self.assert_caught(tidy.check_confined_headers, {path: f'{decent}#include "{inner}"\n'}, path + ":5")


if __name__ == "__main__":
    unittest_xml.main()
