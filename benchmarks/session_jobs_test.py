"""Tests what is taken from the events of ranks that are killed, and when memory counts as flat."""

import unittest

from bazel import unittest_xml
from benchmarks import session_jobs

MS = 1_000_000


class EndedJob:
    """A job whose events are all there. The next life of rank 1 comes back in call 7."""

    world = 3

    def __init__(self):
        self.began = [0, 0, 0]
        self.started = []
        self.lives = [
            [("made", 90 * MS, 6), ("made", 170 * MS, 7), ("made", 180 * MS, 8)],
            [("up", 115 * MS, 0), ("joined", 120 * MS, 1), ("loaded", 150 * MS, 3), ("repeated", 151 * MS, 6), ("made", 160 * MS, 7)],
            [("made", 95 * MS, 6), ("made", 165 * MS, 7)],
        ]

    def kill(self, ranks):
        self.killed = ranks
        return 100 * MS

    def start(self, rank, host):
        self.started.append((rank, host))
        self.began[rank] = 110 * MS

    def events(self, rank):
        return self.lives[rank]

    def wait_for(self, rank, fits):
        return next(event for event in self.lives[rank] if fits(*event))


class SessionJobsTest(unittest.TestCase):
    def test_a_recovery_lasts_until_all_ranks_have_the_call_in_which_they_waited_less_the_start_of_the_program(self):
        job = EndedJob()
        seconds, phases, call = session_jobs.measure_recovery(job, [1], [2])
        self.assertEqual((job.killed, job.started, call), ([1], [(1, 2)], 7))
        # From 100 to 170, and the program took from 110 to 115 to come to its first line.
        self.assertAlmostEqual(seconds, 0.065)
        self.assertEqual({name: round(each * 1e3) for name, each in phases.items()},
                         {"dismantled": 10, "own_start": 5, "joined": 5, "loaded": 30, "result": 20})

    def test_a_recovery_begins_with_the_kill_of_the_node_if_that_is_killed_first(self):
        seconds, _, _ = session_jobs.measure_recovery(EndedJob(), [1], [2], lambda: 98 * MS)
        self.assertAlmostEqual(seconds, 0.067)

    def test_memory_that_grows_after_the_first_samples_is_not_flat(self):
        slack = session_jobs.SLACK_BYTES
        self.assertTrue(session_jobs.is_flat([0, 5, 9, 10, 10, 10 + slack]))
        self.assertFalse(session_jobs.is_flat([0, 5, 9, 10, 10, 11 + slack]))

    def test_the_table_names_the_process_that_grows(self):
        samples = [1 << 20] * session_jobs.WARM_SAMPLES
        record = {"memory_bytes": {"node0": samples + [1 << 20], "node1": samples + [2 << 20]},
                  "while_it_runs": {"objects": 3, "tombstones": 0}, "at_the_end": {"objects": 0, "tombstones": 4}}
        node0, node1, running, end = session_jobs.lines_of(record)
        self.assertNotIn("GROWS", node0)
        self.assertTrue(node1.endswith("1024   2048  GROWS"), node1)
        self.assertEqual(running.strip(), "after nine tenths 3 objects and 0 tombstones")
        self.assertEqual(end.strip(), "at the end 0 objects and 4 tombstones")

    def test_this_process_has_memory_of_its_own(self):
        self.assertGreater(session_jobs.own_bytes("self"), 0)


if __name__ == "__main__":
    unittest_xml.main()
