"""Tests the work of servers and workers of tables, and what is taken from their events."""

import argparse
import unittest
from unittest import mock

from bazel import unittest_xml
from benchmarks.parameter_server import plans, tables
from benchmarks.records import BadInput

MS = 1_000_000


class EndedJob:
    """A job whose server comes back at 140 ms, after which its workers are answered."""

    def __init__(self, *_):
        self.workers, self.servers = ["worker0", "worker1"], ["server0"]
        self.began = {"server0": 110 * MS}
        self.started = []
        self.lives = {
            "server0": [("up", 115 * MS, 0), ("joined", 140 * MS, 1)],
            "worker0": [("answered", 90 * MS, 50), ("answered", 150 * MS, 51)],
            "worker1": [("answered", 91 * MS, 50), ("answered", 170 * MS, 51)],
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def kill(self, _):
        return 100 * MS

    def start(self, key, host, spares=0):
        self.started.append((key, host))

    def events(self, key):
        return self.lives[key]

    def wait_for(self, key, fits):
        return next(event for event in self.lives[key] if fits(*event))


class TablesTest(unittest.TestCase):
    def test_a_run_lasts_from_the_first_begin_to_the_last_end_of_all_workers(self):
        events = [[("begin", 1 * MS, 0), ("end", 5 * MS, 0), ("begin", 10 * MS, 1), ("end", 13 * MS, 1)],
                  [("begin", 2 * MS, 0), ("end", 4 * MS, 0), ("begin", 9 * MS, 1), ("end", 14 * MS, 1)]]
        self.assertEqual([round(each, 6) for each in tables.seconds_of_runs(events, 0)], [0.004, 0.005])
        self.assertEqual([round(each, 6) for each in tables.seconds_of_runs(events, 1)], [0.005])

    def test_a_dense_model_has_whole_rows(self):
        work = tables.dense_work(32 << 20, "own", 3, 1024)
        self.assertEqual((work["keys"], work["width"], work["update"], work["runs"]), (8192, 1024, "own", 3))
        with self.assertRaises(BadInput):
            tables.dense_work(100, "sum", 1, 1024)

    def test_keys_have_gaps_and_are_the_same_in_all_runs_unless_each_is_a_first_one(self):
        again, first = (tables.keyed_work(op, 40_000_000, 6) for op in ("ps_sorted_pull", "ps_sorted_pull_first"))
        self.assertEqual((again["rows"], again["stride"], again["other"], again["work"]), (10_000_000, 2, 0, "pull"))
        self.assertEqual(first["other"], 1)
        # The last run's keys are in the table, too.
        self.assertGreaterEqual(first["keys"], 5 + 2 * 9_999_999 + 1)
        rows = tables.keyed_work("ps_rows_push", 6_400_000, 1)
        self.assertEqual((rows["keys"], rows["rows"], rows["width"], rows["work"]), (0, 100_000, 16, "push"))

    def test_lists_of_keys_count_only_where_they_are_new(self):
        layout = plans.Layout(1, 1, 2)
        self.assertEqual(tables.link_bytes("ps_sorted_push_first", 40_000_000, layout), 120_000_000)
        self.assertEqual(tables.link_bytes("ps_sorted_push", 40_000_000, layout), 40_000_000)
        self.assertEqual(tables.link_bytes("ps_rows_pull_first", 6_400_000, layout), 7_200_000)
        self.assertEqual(tables.link_bytes("ps_dense_clock", 1 << 20, plans.Layout(1, 7, 8)), 1 << 20)

    def test_a_rate_counts_clocks_from_the_first_answer(self):
        events = [("joined", 0, 0), ("answered", 100 * MS, 0), ("clock", 150 * MS, 1), ("answered", 160 * MS, 1), ("clock", 300 * MS, 2)]
        self.assertAlmostEqual(tables.rate_of(events), 10)

    def test_a_killed_server_counts_until_the_last_worker_has_an_answer_of_its_next_life_less_the_start_of_the_program(self):
        job = EndedJob()
        arguments = argparse.Namespace(warmup=0, runs=1)
        with mock.patch.object(tables, "TableJob", return_value=job):
            record = tables.measure_kills(mock.Mock(), arguments, plans.Layout(1, 2, 3), 0, by="move")
        self.assertEqual(job.started, [("server0", 1)])
        # From 100 to 170, and the program took from 110 to 115 to come to its first line.
        self.assertAlmostEqual(record["median_s"], 0.065)
        self.assertEqual({name: round(each * 1e3) for name, each in record["phases_s"].items()},
                         {"started": 10, "own_start": 5, "joined": 25, "answered": 30})

    def test_a_spare_that_takes_the_part_of_a_killed_server_counts_from_the_kill(self):
        job = EndedJob()
        job.lives["spare0"] = job.lives.pop("server0")
        arguments = argparse.Namespace(warmup=0, runs=1)
        with mock.patch.object(tables, "TableJob", return_value=job):
            record = tables.measure_kills(mock.Mock(), arguments, plans.Layout(1, 2, 3), 0, by="spare")
        self.assertEqual(job.started, [("spare0", 1)])
        self.assertAlmostEqual(record["median_s"], 0.07)
        self.assertEqual({name: round(each * 1e3) for name, each in record["phases_s"].items()},
                         {"own_start": 0, "joined": 40, "answered": 30})

    def test_lines_name_what_an_op_is_about(self):
        (line,) = tables.lines_of({"clocks_per_s": 9.0, "of_bsp": 1.8})
        self.assertEqual(line.strip(), "9.000 clocks/s, 1.800 x those of BSP")
        (line,) = tables.lines_of({"overhead": 0.0123})
        self.assertEqual(line.strip(), "+1.23 % of the time without snapshots")


if __name__ == "__main__":
    unittest_xml.main()
