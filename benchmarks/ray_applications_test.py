"""Tests the applications of benchmarks/ray: plans, records, what they are compared with, and the table."""

import unittest

from bazel import unittest_xml
from benchmarks import ray_applications, records

MIB = 1 << 20


def trial(rate=2.0, curve=((0, 1.0), (2, 0.5), (4, 0.25)), **others):
    made = {"rate": rate, "unit": "steps/s", "right": True, "learned": True, "emulated": True, "cpu_share": 0.5, "workers": 7, "curve_name": "loss",
            "curve": [list(point) for point in curve], "step_seconds": [1 / rate] * 3}
    made.update(others)
    return made


def measured(op="sgd3", way="phalanx", trials=None, kill=None):
    step = ray_applications.plan_line(ray_applications.BY_OP[op], [way], 7, 3, 64 * MIB, kill=kill)
    return dict(records.summarize(ray_applications.record_of(step, way, trials or [trial()])), world=8)


class ApplicationsTest(unittest.TestCase):
    def test_a_group_is_its_members_and_each_op_is_done_once(self):
        self.assertEqual(ray_applications.expanded(["broadcast", "sgd", "sgd6"]),
                         ["broadcast", "sgd3", "sgd6", "sgd-one-reduce"])

    def test_an_unknown_op_is_named(self):
        with self.assertRaisesRegex(records.BadInput, "'sgd9'.*sgd, .*sgd3"):
            ray_applications.check(["sgd3", "sgd9"], 7)

    def test_more_results_of_a_step_than_workers_are_refused(self):
        ray_applications.check(["sgd6"], 6)
        with self.assertRaisesRegex(records.BadInput, "sgd6 takes the first 6 of its workers; with --nodes 6 it has 5"):
            ray_applications.check(["sgd6"], 5)

    def test_a_kill_of_no_worker_or_beyond_the_steps_is_refused(self):
        ray_applications.check(["sgd3", "serving"], 7, "6@7")
        for op, kill, steps in (("sgd3", "1@9", 7), ("sgd3", "7@1", 7), ("serving", "1@10", 9)):
            with self.assertRaisesRegex(records.BadInput, f"--kill {kill}: {op} has the workers 0 to 6 and the steps 0 to {steps}"):
                ray_applications.check([op], 7, kill)
        with self.assertRaisesRegex(records.BadInput, "'1' is not like 1@3"):
            ray_applications.check(["sgd3"], 7, "1")

    def test_a_step_runs_the_program_with_its_size_in_every_way(self):
        step = ray_applications.plan_line(ray_applications.BY_OP["sgd6"], ["phalanx", "ray:trees"], 7, 5, 3 * MIB, 0.1, "1@2")
        self.assertEqual(step["command"], ["async_sgd.py", "--workers=7", "--first=6", "--steps=5", "--megabytes=3.0",
                                           "--gradient-seconds=0.1", "--kill=1@2"])
        self.assertEqual(list(step["ways"]), ["phalanx", "ray:trees"])
        self.assertEqual(step["ways"]["ray:trees"], ["--transport=ray", "--ray-form=trees"])

    def test_a_failure_run_of_serving_has_one_client_before_and_after(self):
        serving = ray_applications.BY_OP["serving"]
        killed = ray_applications.plan_line(serving, ["phalanx"], 7, 1, MIB, kill="1@3")["command"]
        self.assertEqual(killed[1:4], ["--workers=7", "--clients=1", "--requests=10"])
        self.assertEqual(serving.steps(), 10)

    def test_an_application_with_its_own_model_has_that_ones_size(self):
        step = ray_applications.plan_line(ray_applications.BY_OP["sgd-spirals"], ["phalanx"], 7, 5, 64 * MIB, 0.1)
        self.assertEqual(step["command"], ["async_sgd.py", "--workers=7", "--first=3", "--steps=300"])
        record = ray_applications.record_of(step, "phalanx", [trial(megabytes=516 / MIB, emulated=False)])
        self.assertEqual((record["size_bytes"], record["gradient_seconds"]), (516, 0))

    def test_ways_are_chosen_from_those_of_each_op(self):
        ways = {"broadcast": ("ray:default", "refs", "tensors"), "sgd3": ("phalanx", "ray:flat")}
        self.assertEqual(ray_applications.chosen_ways(ways, []), {op: list(each) for op, each in ways.items()})
        self.assertEqual(ray_applications.chosen_ways(ways, ["tensors", "refs", "phalanx"]),
                         {"broadcast": ["refs", "tensors"], "sgd3": ["phalanx"]})
        with self.assertRaisesRegex(records.BadInput, "unknown way 'waves'; there are phalanx, ray:default"):
            ray_applications.chosen_ways(ways, ["refs", "waves", "phalanx"])
        with self.assertRaisesRegex(records.BadInput, "sgd3 has none of these ways; it has phalanx, ray:flat"):
            ray_applications.chosen_ways(ways, ["refs"])

    def test_the_time_of_a_record_is_that_of_one_step(self):
        record = measured(trials=[trial(rate=2), trial(rate=4), trial(rate=1, right=False)])
        self.assertEqual((record["each_s"], record["median_s"], record["verified"]), ([0.5, 0.25, 1], 0.5, False))
        self.assertEqual(ray_applications.verdict(record), "wrong")
        self.assertEqual(ray_applications.verdict(measured(trials=[trial(), trial(learned=False)])), "not learned")
        records.check(dict(record, limit_s=0.0), "the record")

    def test_the_floor_of_one_reduce_is_two_transfers_less_the_own_part(self):
        record, = ray_applications.with_floors([measured("sgd-one-reduce")], 0.7)
        self.assertAlmostEqual(record["floor_s"], 1.2)
        self.assertEqual(record["limit_s"], 0.7)

    def test_phalanx_is_compared_with_the_faster_way_of_ray(self):
        found = [measured(trials=[trial(rate=3)]), measured(way="ray:flat", trials=[trial(rate=1)]),
                 measured(way="ray:trees", trials=[trial(rate=1.5)]), measured("sgd6", "ray:flat", [trial(rate=9)])]
        self.assertEqual(ray_applications.fastest_of_ray(found[:3])["algorithm"], "ray:trees")
        lines = ray_applications.table(ray_applications.with_floors(found, 0.25))
        self.assertIn("2.00 x", lines[1])
        self.assertIn("1.333", lines[1])  # of S/B

    def test_the_equal_loss_is_what_every_trial_has_reached(self):
        found = [measured(trials=[trial(curve=((0, 1.0), (1, 0.6), (2, 0.2)))]),
                 measured(way="ray:flat", trials=[trial(curve=((0, 1.0), (5, 0.6), (9, 0.5)))])]
        self.assertEqual(ray_applications.seconds_to_equal(found), [2, 9])

    def test_the_equal_score_is_that_of_the_program(self):
        found = [measured(trials=[trial(curve_name="score", reached_after_s=each) for each in (1, 2, 6)]),
                 measured(way="ray:flat", trials=[trial(curve_name="score", reached_after_s=8)])]
        self.assertEqual(ray_applications.seconds_to_equal(found), [2, 8])

    def test_curves_that_become_worse_or_show_nothing_have_no_time_to_equal_loss(self):
        self.assertIsNone(ray_applications.seconds_to_equal([measured(trials=[trial(curve=((0, 1.0), (1, 9.0)))])]))
        self.assertIsNone(ray_applications.seconds_to_equal([measured(trials=[trial(curve_name="score", reached_after_s=None)])]))
        self.assertIsNone(ray_applications.seconds_to_equal([measured(trials=[trial(curve_name="")])]))

    def test_a_kill_is_in_the_table_also_without_a_step_after_it(self):
        kill = {"worker": 1, "step": 2, "before_s": 0.5, "longest_s": 3.0, "after_s": None, "seconds_lost": 2.5, "steps_lost": 5.0}
        lines = ray_applications.table(ray_applications.with_floors([measured(trials=[trial(kill=kill)], kill="1@2")], 0.25))
        self.assertIn("longest 3.000 s, after nan s, 2.50 s or 5.0 steps lost", lines[2])


if __name__ == "__main__":
    unittest_xml.main()
