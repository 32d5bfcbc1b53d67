"""Checks what the client library links into a program: no protobuf, no gRPC, no daemon code.

usage: client_links_test PROGRAM, any program that links the client
"""

import pathlib
import re
import subprocess
import sys
import unittest

from bazel import unittest_xml

FOREIGN = re.compile(r"protobuf|grpc|\b_*upb|spdlog|asio|crypto|libssl|cares", re.IGNORECASE)
ALLOWED = re.compile(r"lib(absl_.*|stdc\+\+|m|gcc_s|c|dl|pthread|[tau]+san)\.so|ld-linux")


def _lines(*command):
    return subprocess.run(
        command, stdout=subprocess.PIPE, universal_newlines=True, check=True
    ).stdout.splitlines()


class ClientLinksTest(unittest.TestCase):
    def test_build_depends_on_no_foreign_library(self):
        lines = pathlib.Path("src/client/testing/client_reaches.txt").read_text().splitlines()
        self.assertEqual(lines, ["//src/client:client"])

    def test_program_loads_only_abseil_and_system_libraries(self):
        needed = [line for line in _lines("readelf", "-d", sys.argv[1]) if "NEEDED" in line]
        self.assertTrue(needed)
        strangers = [line for line in needed if not ALLOWED.search(line)]
        self.assertEqual(strangers, [])

    def test_no_symbol_belongs_to_a_foreign_library(self):
        symbols = _lines("nm", "--demangle", sys.argv[1])
        self.assertTrue(any("phalanx::Client::Connect" in symbol for symbol in symbols))
        self.assertEqual([symbol for symbol in symbols if FOREIGN.search(symbol)], [])


if __name__ == "__main__":
    unittest_xml.main()
