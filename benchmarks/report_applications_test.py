"""Tests the report's part about applications: titles, tables, and the time to equal loss."""

import unittest

from bazel import unittest_xml
from benchmarks import records, report_applications, report_page

MIB = 1 << 20


def record(way="phalanx", median=0.5, curve=((0, 1.0), (2, 0.5)), **others):
    trials = [{"curve_name": "loss", "curve": [list(point) for point in curve], "step_seconds": [median]}]
    made = {"op": "sgd3", "title": "asynchronous SGD", "algorithm": way, "size_bytes": 64 * MIB, "world": 8, "rate": "1gbit",
            "gradient_seconds": 0.1, "kill": "", "unit": "steps/s", "emulated": True, "median_s": median, "min_s": median / 2,
            "max_s": median * 2, "limit_s": 0.25, "floor_s": 0.25, "cpu_share": 0.75, "verified": True, "learned": True, "trials": trials}
    made.update(others)
    records.check(made, "the test's record")
    return made


class ReportApplicationsTest(unittest.TestCase):
    def page(self, loaded):
        _, experiments = report_applications.split({"a.json": loaded})
        return "\n\n".join(report_applications.render(experiments, {}, report_page.table))

    def test_applications_stand_apart_from_other_records(self):
        plain = {"op": "broadcast"}
        others, experiments = report_applications.split({"a.json": [plain, record(), record("ray:flat")]})
        self.assertEqual(others, {"a.json": [plain]})
        self.assertEqual([list(each.ways) for each in experiments], [["Phalanx", "Ray, flat"]])

    def test_an_emulated_size_is_in_the_title(self):
        self.assertIn("## emulated: asynchronous SGD, 64 MiB, 8 hosts, links of 1gbit, 0.1 s of emulated work\n", self.page([record()]))
        self.assertIn("## asynchronous SGD, 64 MiB, 8 hosts, links of 1gbit\n", self.page([record(emulated=False)]))

    def test_another_size_work_or_kill_is_another_experiment(self):
        loaded = [record(), record(gradient_seconds=0.5), record(size_bytes=MIB), record(kill="1@3"), record(op="sgd6")]
        _, experiments = report_applications.split({"a.json": loaded})
        self.assertEqual(len({each.name() for each in experiments}), len(loaded))

    def test_each_way_is_compared_with_the_fastest_of_ray(self):
        page = self.page([record(), record("ray:flat", 2.0, ((0, 1.0), (9, 0.5))), record("ray:trees", 1.5)])
        self.assertIn("| Phalanx | 2 steps/s | 0.5 (0.25, 1) | 2.00 | 3.00 | 2.00 | 75 % |", page)
        self.assertIn("| Ray, flat | 0.5 steps/s | 2 (1, 4) | 8.00 | 0.75 | 9.00 | 75 % |", page)

    def test_a_failure_run_has_the_steps_before_between_and_after(self):
        kill = {"before_s": 0.5, "during_s": 1.0, "longest_s": 3.0, "after_s": None, "seconds_lost": 2.5, "steps_lost": 5.0}
        killed = record(kill="1@3", trials=[{"curve": [], "step_seconds": [1], "kill": kill}])
        page = self.page([killed])
        self.assertIn("worker 1 killed at step 3", page)
        self.assertIn("| Phalanx | 0.500 | 1.000 | 3.000 | - | 2.5 | 5.0 |", page)

    def test_a_record_without_a_key_and_one_that_is_there_twice_are_named(self):
        lacking = {key: value for key, value in record().items() if key != "kill"}
        with self.assertRaisesRegex(records.BadInput, "a.json: the record of sgd3 has trials, but no 'kill'"):
            self.page([lacking])
        with self.assertRaisesRegex(records.BadInput, "a.json has emulated: asynchronous SGD.*twice for Phalanx"):
            self.page([record(), record()])


if __name__ == "__main__":
    unittest_xml.main()
