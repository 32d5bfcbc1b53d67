"""Runs every C++ example against a private cluster and checks its output; compiles the sample of the README.

usage: examples_test PHALANX, the executable that starts the private cluster
"""

import os
import subprocess
import sys
import unittest

from bazel import unittest_xml

FOLDER = "examples/cpp"
EXPECTED = {
    "quickstart": "hello, world (text/plain)\n",
    "streaming_writer": "read 8388608 bytes, all as written\n",
    "event_loop": "10 objects put and got\n",
    "reduce": "3 10 5, of 3 results\n",
    "first_results": "6: of task 6\n1: of task 1\n4: of task 4\n",
}


class ExamplesTest(unittest.TestCase):
    def test_examples_print_what_they_promise(self):
        environment = dict(os.environ, PHALANX_BINARY=os.path.abspath(sys.argv[1]))
        environment.pop("PHALANX_ADDRESS", None)
        for name, output in EXPECTED.items():
            with self.subTest(name):
                ended = subprocess.run(
                    [os.path.join(FOLDER, name)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    universal_newlines=True,
                    timeout=60,
                    check=False,
                )
                self.assertEqual(ended.returncode, 0)
                self.assertEqual(ended.stdout, output)

    def test_the_sample_of_the_readme_compiles(self):
        with open("README.md") as readme:
            include, body = readme.read().split("```cpp\n")[1].split("```")[0].split("\n", 1)
        ended = subprocess.run(
            ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", "-Iinclude", "-xc++", "-"],
            input=f"{include}\nvoid Sample(absl::string_view bytes) {{\n{body}\n}}\n",
            stderr=subprocess.PIPE,
            universal_newlines=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_every_example_is_run(self):
        sources = {name[:-3] for name in os.listdir(FOLDER) if name.endswith(".cc")}
        self.assertEqual(sources, set(EXPECTED))


if __name__ == "__main__":
    unittest_xml.main()
