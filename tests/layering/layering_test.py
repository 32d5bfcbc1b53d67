"""What the libraries of the tree depend on, however indirectly, as Bazel itself sees it."""

import pathlib
import unittest

from bazel import unittest_xml


def reached(name):
    """{library: what it reaches of the forbidden} from a phalanx_reaches file of this folder."""
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

    def test_cores_have_no_grpc_no_sockets_and_no_locks(self):
        self.assert_reach_nothing(reached("cores"))

    def test_store_data_plane_and_client_have_no_grpc(self):
        self.assert_reach_nothing(reached("grpc_free"))

    def test_the_query_finds_grpc_where_it_is(self):
        for library, found in reached("grpc_rims").items():
            with self.subTest(library=library):
                self.assertEqual(found, ["//third_party:grpc"])


if __name__ == "__main__":
    unittest_xml.main()
