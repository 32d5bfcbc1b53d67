"""The dependencies of the tree's libraries, direct and indirect, as Bazel reports them, and the system
headers that the cores include."""

import pathlib
import re
import unittest

from bazel import unittest_xml

# The test runs outside the sandbox, so this runfile links to the real tree.
ROOT = pathlib.Path("WORKSPACE").resolve().parent

# Headers that a core must not include. <atomic> and <memory> are allowed: they do not block.
FORBIDDEN_HEADERS = re.compile(
    r"#include <(thread|mutex|shared_mutex|condition_variable|future|semaphore|barrier|latch|stop_token"
    r"|chrono|ctime|time\.h|fstream|filesystem|random|pthread\.h|unistd\.h|fcntl\.h|dirent\.h|sched\.h"
    r"|sys/(?!uio)[a-z_]+\.h|netinet/[a-z_]+\.h|arpa/[a-z_]+\.h|poll\.h|netdb\.h|asio.*|grpc.*)>"
    r'|#include "(absl/synchronization|absl/time/clock|grpc|asio|spdlog)'
)
# Sources of ids and incarnations, and the report of a broken invariant: they use the system's
# random generator and standard error.
EXEMPT = {"src/common/ids/object_id.cc", "src/common/random.cc", "src/common/check.cc"}


def reached(name):
    """Return {library: the forbidden libraries that it reaches}, from a phalanx_reaches file here."""
    libraries = {}
    for line in (pathlib.Path("tests/layering") / f"{name}.txt").read_text().splitlines():
        if line.startswith("  "):
            libraries[library].append(line.strip())
        else:
            library = line
            libraries[library] = []
    return libraries


class LayeringTest(unittest.TestCase):
    def assert_reach_nothing(self, libraries):
        self.assertTrue(libraries)
        for library, forbidden in libraries.items():
            with self.subTest(library=library):
                self.assertEqual(forbidden, [])

    def test_cores_have_no_grpc_no_sockets_no_locks_and_no_executor(self):
        self.assert_reach_nothing(reached("cores"))

    def test_libraries_of_the_simulation_have_no_sockets_no_files_and_no_loop(self):
        self.assert_reach_nothing(reached("seamless"))

    def test_the_client_has_no_grpc_and_no_protobuf(self):
        self.assert_reach_nothing(reached("client"))

    def test_the_queries_find_forbidden_libraries_in_the_rims(self):
        found = reached("rims")
        expected = {
            "//src/directory/grpc:shard_connector": "//third_party:grpc",
            "//src/net/loop:event_loop": "//third_party:asio",
            "//src/net/pull:transfer_buffer": "//src/common/threads:mutex",
            "//src/local:local_service": "//src/common/io:log",
            "//src/object_store/memory:memfd_memory": "//src/object_store/memory:memfd_file",
        }
        self.assertEqual(found.keys(), expected.keys())
        for library, dependency in expected.items():
            self.assertIn(dependency, found[library])

    def test_cores_include_no_header_of_threads_clocks_sockets_or_files(self):
        sources = sorted({source for each in reached("core_sources").values() for source in each})
        self.assertGreater(len(sources), 40)
        for label in sources:
            path = label.removeprefix("//").replace(":", "/")
            if path in EXEMPT:
                continue
            with self.subTest(path=path):
                text = (ROOT / path).read_text()
                self.assertEqual([match.group(0) for match in FORBIDDEN_HEADERS.finditer(text)], [])


if __name__ == "__main__":
    unittest_xml.main()
