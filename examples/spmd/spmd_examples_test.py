"""Runs the examples of sessions under `phalanx launch`, with deaths and without.

usage: spmd_examples_test PHALANX
"""

import os
import subprocess
import sys
import unittest

from bazel import unittest_xml

FOLDER = "examples/spmd"


def launch(tasks, example, *flags):
    """Run an example on a private cluster, and return the sorted lines of its output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    ended = subprocess.run(
        [sys.argv[1], "launch", f"-n{tasks}", *flags, "--", os.path.join(FOLDER, example)],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
        check=False,
    )
    if ended.returncode != 0:
        raise AssertionError(f"{example} {flags}: {ended.returncode}: {ended.stdout}\n{ended.stderr}")
    return sorted(ended.stdout.splitlines())


class SpmdExamplesTest(unittest.TestCase):
    def test_basic_prints_what_its_readme_says(self):
        with open(os.path.join(FOLDER, "README.md")) as readme:
            expected = [line.strip() for line in readme if line.startswith("    [worker")]
        self.assertEqual(launch(3, "basic", "--restarts=2", "--fail=1@4"), sorted(expected))
        self.assertEqual(launch(3, "basic"), sorted(line for line in expected if " life " not in line))

    def test_broadcast_sends_what_the_first_life_of_the_root_has(self):
        expected = [f"[worker{rank}] rank {rank} has received 3 broadcasts" for rank in range(3)]
        self.assertEqual(launch(3, "broadcast"), expected)
        # In the Broadcast before Load, in that of its own round, and twice.
        deaths = ["--fail=0@3", "--fail=1@8", "--fail=2@5", "--fail=2@2"]
        self.assertEqual(launch(3, "broadcast", "--restarts=4", *deaths), expected)

    def test_lazy_allreduce_prepares_what_is_needed(self):
        def expected(dead=None):
            lines = [(rank, 1, [2]) if rank == dead else (rank, 0, [0, 1, 2]) for rank in range(3)]
            return [f"[worker{r}] rank {r}, life {life}: prepared calls {calls}, the last sum is 300" for r, life, calls in lines]

        self.assertEqual(launch(3, "lazy_allreduce"), expected())
        self.assertEqual(launch(3, "lazy_allreduce", "--restarts=1", "--fail=1@4"), expected(1))

    def test_kmeans_has_the_same_bits_with_deaths(self):
        calm = launch(4, "kmeans")
        self.assertEqual(len(calm), 1)
        # In the Broadcast before Load, between checkpoints, twice, and in Leave.
        deaths = ["--fail=0@3", "--fail=1@8", "--fail=2@10", "--fail=2@5", "--fail=3@24"]
        self.assertEqual(launch(4, "kmeans", "--restarts=8", *deaths), calm)


if __name__ == "__main__":
    unittest_xml.main()
