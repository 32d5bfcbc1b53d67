"""Runs the example of a parameter server in C++ under `phalanx launch`, with deaths and without.

usage: ps_examples_test PHALANX
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from bazel import unittest_xml

PROGRAM = "examples/ps/logistic"
CLOCKS = "--clocks=60"


def run(*command, expect=0):
    """Run a command, and return its output and its errors."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    ended = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=120, check=False,
    )
    if ended.returncode != expect:
        raise AssertionError(f"{command}: {ended.returncode}: {ended.stdout}\n{ended.stderr}")
    return ended.stdout, ended.stderr


def serial(*words):
    return run(PROGRAM, "--serial=4", CLOCKS, *words)[0]


def launch(*words, deaths=()):
    """Run two servers and four workers on a private cluster, and return the output. The launch fails without a death."""
    flags = ["--servers=2", "--workers=4", f"--restarts={len(deaths)}", "--no-prefix", *(f"--fail={death}" for death in deaths)]
    out, errors = run(sys.argv[1], "launch", *flags, "--", PROGRAM, CLOCKS, *words)
    if errors.count("ended by signal 9") != len(deaths):
        raise AssertionError(f"{deaths}: {errors}")
    return out


class PsExamplesTest(unittest.TestCase):
    def test_bsp_has_the_bits_of_the_serial_replay_with_deaths_too(self):
        expected = serial()
        self.assertEqual(launch(), expected)
        # The first clock, one after the other, and both roles in the last clock.
        for deaths in (
            ["server:0,0,0@push", "worker:1,9,0@push", "server:1,30,0@clock", "worker:0,45,0@clock", "worker:3,59,0@push"],
            ["server:0,20,0@snapshot:0", "server:0,10,1@restore", "server:1,35,0@snapshot:1000000", "worker:2,50,0@pull"],
        ):
            self.assertEqual(launch(deaths=deaths), expected)

    def test_ssp_and_asp_come_to_the_same_loss(self):
        line = re.compile(r"(\w+): accuracy ([0-9.]+), loss ([0-9.]+), table [0-9a-f]{16}\n")
        _, accuracy, loss = line.fullmatch(serial()).groups()
        self.assertGreaterEqual(float(accuracy), 0.7)
        for sync in ("ssp", "asp"):
            named, _, found = line.fullmatch(launch(f"--sync={sync}")).groups()
            self.assertEqual(named, sync)
            self.assertAlmostEqual(float(found), float(loss), delta=0.01 * float(loss))

    def test_a_file_is_read_or_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "examples")
            with open(path, "w") as file:
                # Two classes by the sign of the only feature; the two of the second line are held out.
                file.write("4 2 2 2\n" + "".join(f"{i % 2} {float(2 * (i % 2) - 1).hex()} 0x1p+0\n" for i in range(6)))
            self.assertTrue(serial(path).startswith("bsp: accuracy 1.0000, loss "))
            os.truncate(path, os.path.getsize(path) - 8)
            _, errors = run(PROGRAM, "--serial=4", path, expect=1)
            self.assertIn(f"{path}: example 5 is not what logistic.py --export writes", errors)


if __name__ == "__main__":
    unittest_xml.main()
