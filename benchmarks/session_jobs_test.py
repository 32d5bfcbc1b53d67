"""Tests what is taken from the events of ranks that end, and when memory counts as flat."""

import signal
import subprocess
import sys
import unittest
from unittest import mock

from bazel import unittest_xml
from benchmarks import session_jobs

MS = 1_000_000


class EndedJob:
    """A job whose events are all there. The next life of rank 1 comes back in call 7."""

    world = 3

    def __init__(self):
        self.began = [0, 0, 0]
        self.started = []
        self.ended = []
        self.name = "ended"
        self.lives = [
            [("made", 90 * MS, 6), ("made", 170 * MS, 7), ("made", 180 * MS, 8)],
            [("up", 115 * MS, 0), ("joined", 120 * MS, 1), ("loaded", 150 * MS, 3), ("repeated", 151 * MS, 6), ("made", 160 * MS, 7)],
            [("made", 95 * MS, 6), ("made", 165 * MS, 7)],
        ]

    def kill(self, ranks):
        self.ended.append(("killed", ranks))
        return 100 * MS

    def stop(self, ranks):
        self.ended.append(("stopped", ranks))
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
        self.assertEqual((job.ended, job.started, call), ([("killed", [1])], [(1, 2)], 7))
        # From 100 to 170, and the program took from 110 to 115 to come to its first line.
        self.assertAlmostEqual(seconds, 0.065)
        self.assertEqual({name: round(each * 1e3) for name, each in phases.items()},
                         {"dismantled": 10, "own_start": 5, "joined": 5, "loaded": 30, "result": 20})

    def test_a_recovery_begins_with_the_kill_of_the_node_if_that_is_killed_first(self):
        seconds, _, _ = session_jobs.measure_recovery(EndedJob(), [1], [2], lambda: 98 * MS)
        self.assertAlmostEqual(seconds, 0.067)

    def test_a_stopped_host_counts_from_the_stop_of_its_node(self):
        job = EndedJob()
        seconds, phases, _ = session_jobs.measure_recovery(job, [1], [2], lambda: 98 * MS, job.stop)
        self.assertEqual(job.ended, [("stopped", [1])])
        self.assertAlmostEqual(seconds, 0.067)
        self.assertAlmostEqual(phases["dismantled"], 0.012)

    def test_a_stopped_rank_lives_until_the_job_ends_and_its_next_life_has_its_place(self):
        cluster = mock.Mock(**{"arguments.clients": 1, "hosts.count": 1})
        cluster.folder.__truediv__ = mock.Mock()
        job = session_jobs.SessionJob(cluster, "stops", [])
        first, second = (subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2))
        job.processes = {0: first}
        with mock.patch.object(job, "start"), job:
            job.stop([0])
            job.processes = {0: second}
            self.assertIsNone(first.poll())
        self.assertEqual((first.returncode, second.returncode), (-signal.SIGKILL, -signal.SIGKILL))

    def test_a_shard_counts_from_its_next_start_and_the_next_life_waits_for_it(self):
        job, cluster = EndedJob(), mock.Mock()
        before = job.lives[1][:1]
        after = job.lives[1]
        job.lives[1] = before
        cluster.restart_shard.side_effect = lambda: job.lives.__setitem__(1, after) or 118 * MS
        with mock.patch.object(session_jobs.time, "sleep"):
            seconds, phases, call = session_jobs.measure_shard_recovery(job, 1, 2, cluster)
        self.assertEqual((job.ended, job.started, call), ([("killed", [1])], [(1, 2)], 7))
        self.assertEqual([name for name, *_ in cluster.method_calls], ["kill_shard", "restart_shard"])
        self.assertAlmostEqual(seconds, 0.052)
        self.assertEqual({name: round(each * 1e3) for name, each in phases.items()}, {"joined": 2, "loaded": 30, "result": 20})

    def test_a_life_that_joins_without_its_shard_is_an_error(self):
        with mock.patch.object(session_jobs.time, "sleep"), self.assertRaisesRegex(SystemExit, "rank 1 of ended has joined"):
            session_jobs.measure_shard_recovery(EndedJob(), 1, 2, mock.Mock())

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
