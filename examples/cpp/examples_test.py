"""Runs every C++ example against a private cluster and checks its output; compiles the samples of pages.

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
# Pages with samples of C++, and what stands around a sample there.
PAGES = ["README.md", "docs/client.md", "docs/collectives.md", "docs/lifetime.md"]
_PARAMETER_SERVER = "docs/parameter-server.md"
_SURROUNDINGS = """
#include <sys/epoll.h>

#include <algorithm>

#include "phalanx/client.h"
#include "phalanx/collectives.h"
#include "phalanx/job.h"

constexpr size_t kBytes = 1 << 20, kStep = 1 << 10;
std::shared_ptr<phalanx::Client> client;
phalanx::ObjectId id, best, sum;
std::vector<phalanx::ObjectId> results, gradients;
absl::string_view bytes;
size_t i, done;
int loop;
bool finished;
epoll_event event, watch;
template <typename... Results>
void use(const Results&...);
void start_again_at_0();

void Samples() {
"""
_AROUND_PARAMETER_SERVERS = """
#include <algorithm>

#include "phalanx/ps.h"

using namespace phalanx::ps;

std::vector<float> Gradient(const std::vector<float>& weights);
absl::StatusOr<Server> server;
absl::StatusOr<Worker> worker;
absl::StatusOr<Table<float>> table;
absl::StatusOr<Table<int64_t>> neighbours;

"""


def samples_of(page):
    """The blocks of C++ of a page."""
    with open(page) as text:
        return [sample.split("```")[0] for sample in text.read().split("```cpp\n")[1:]]


def in_function(sample, page):
    body = "\n".join(line for line in sample.splitlines() if not line.startswith("#include"))
    return f"[]() -> absl::Status {{ // {page}\n{body}\nreturn absl::OkStatus(); }};\n"


class ExamplesTest(unittest.TestCase):
    def assert_compiles(self, program):
        ended = subprocess.run(
            ["g++", "-std=c++20", "-fsyntax-only", "-Iinclude", "-xc++", "-"],
            input=program,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)

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

    def test_the_samples_of_the_pages_compile(self):
        program = _SURROUNDINGS
        for page in PAGES:
            samples = samples_of(page)
            self.assertTrue(samples, page)
            program += "".join(in_function(sample, page) for sample in samples)
        self.assert_compiles(program + "}\n")

    def test_the_samples_of_parameter_servers_compile(self):
        """The first one is a program; the others are lines of functions."""
        first, *others = samples_of(_PARAMETER_SERVER)
        self.assertTrue(others)
        functions = "".join(in_function(sample, _PARAMETER_SERVER) for sample in others)
        self.assert_compiles(f"{_AROUND_PARAMETER_SERVERS}{first}\nvoid Samples() {{\n{functions}}}\n")

    def test_every_example_is_run(self):
        sources = {name[:-3] for name in os.listdir(FOLDER) if name.endswith(".cc")}
        self.assertEqual(sources, set(EXPECTED))


if __name__ == "__main__":
    unittest_xml.main()
