"""Tests the plans of programs for ps-lite, and what is made of their measurements."""

import unittest

from bazel import unittest_xml
from benchmarks.parameter_server import plans
from benchmarks.records import BadInput

MS = 1_000_000


def record_of(peer, op, each_s, algorithm="default", calls=1, size=4):
    return {"peer": peer, "op": op, "algorithm": algorithm, "size_bytes": size, "calls": calls, "servers": 2, "world": 2, "each_s": each_s,
            "verified": True}


class PlansTest(unittest.TestCase):
    def test_workers_come_after_the_servers_and_all_are_on_one_host_if_there_is_one(self):
        layout = plans.layout_of(8, 4, 0)
        self.assertEqual([layout.host_of_server(rank) for rank in range(4)], [0, 1, 2, 3])
        self.assertEqual([layout.host_of_worker(rank) for rank in range(layout.workers)], [4, 5, 6, 7])
        alone = plans.layout_of(1, 1, 0)
        self.assertEqual((alone.workers, alone.host_of_server(0), alone.host_of_worker(0)), (1, 0, 0))
        with self.assertRaises(BadInput):
            plans.layout_of(2, 0, 1)

    def test_a_plan_has_each_algorithm_of_an_op_with_its_own_size_unless_others_are_given(self):
        self.assertEqual(plans.plan(["ps_float", "ps_dense_clock"], [], 0, 1, 5),
                         ["ps_float default 4 200 1 5", "ps_dense_clock default 33554432 1 1 5", "ps_dense_clock keyed 33554432 1 1 5"])
        self.assertEqual(plans.plan(["ps_benchmark"], [4096], 7, 2, 3), ["ps_benchmark default 4096 7 2 3"])

    def test_a_run_lasts_from_the_first_begin_to_the_last_end_of_all_workers(self):
        outputs = [f"ps_float default 4 10 {5 * MS} {9 * MS} {20 * MS} {21 * MS}\n",
                   f"ps_float default 4 10 {4 * MS} {8 * MS} {20 * MS} {25 * MS}\n"]
        (record,) = plans.records_of(outputs, plans.Layout(1, 2, 3))
        self.assertEqual((record["op"], record["size_bytes"], record["calls"], record["world"]), ("ps_float", 4, 10, 2))
        self.assertEqual([round(each, 6) for each in record["each_s"]], [0.005, 0.005])

    def test_workers_that_have_not_made_the_same_steps_are_an_error(self):
        with self.assertRaises(SystemExit):
            plans.records_of(["ps_float default 4 1 0 1\n", ""], plans.Layout(1, 2, 3))

    def test_turns_are_merged_by_peer_and_algorithm(self):
        merged = plans.merge_turns([record_of("libps", "ps_float", [1.0, 2.0]), record_of("ps-lite", "ps_float", [5.0]),
                                    record_of("libps", "ps_float", [9.0]), record_of("libps", "ps_float", [4.0], "keyed")])
        self.assertEqual([(record["peer"], record["algorithm"], record["each_s"], record["median_s"]) for record in merged],
                         [("libps", "default", [1.0, 2.0, 9.0], 2.0), ("ps-lite", "default", [5.0], 5.0), ("libps", "keyed", [4.0], 4.0)])

    def test_ours_are_compared_with_the_best_algorithm_of_ps_lite(self):
        records = plans.merge_turns([record_of("libps", "ps_dense_clock", [3.0]), record_of("ps-lite", "ps_dense_clock", [4.0]),
                                     record_of("ps-lite", "ps_dense_clock", [2.0], "keyed")])
        rated = plans.with_rates(records)
        self.assertEqual([record.get("of_ps_lite") for record in rated], [1.5, None, None])

    def test_goodput_counts_one_direction_and_other_calls_have_a_mean(self):
        goodput, calls = plans.with_rates(plans.merge_turns([record_of("libps", "ps_benchmark", [2.0], calls=40, size=1_000_000),
                                                             record_of("libps", "ps_float", [2.0], calls=100)]))
        self.assertAlmostEqual(goodput["goodput_gbps"], 0.32)
        self.assertAlmostEqual(calls["call_us"], 20_000)
        self.assertEqual(plans.lines_of(goodput), "default, 0.320 Gbit/s goodput")

    def test_the_busiest_link_carries_keys_and_values_of_its_host(self):
        one, four = plans.Layout(1, 1, 2), plans.Layout(4, 4, 8)
        self.assertEqual(plans.link_bytes(record_of("libps", "ps_sorted_push", [1], size=40_000_000), one), 120_000_000)
        self.assertEqual(plans.link_bytes(record_of("libps", "ps_rows_pull", [1], size=6_400_000), one), 7_200_000)
        self.assertEqual(plans.link_bytes(record_of("libps", "ps_benchmark", [1], calls=40, size=1_000), four), 160_000)
        self.assertEqual(plans.link_bytes(record_of("libps", "ps_float", [1]), one), 0)


if __name__ == "__main__":
    unittest_xml.main()
