"""Tests how records of several runs and turns become one."""

import unittest

from bazel import unittest_xml
from benchmarks import bench_ranks


def record(op, each, size=8, limit=1.0, **others):
    return {"op": op, "size_bytes": size, "world": 8, "runs": len(each), "each_s": each, "verified": True, "limit_s": limit,
            "shape_limit_s": 2 * limit, "cpu_s_per_gb": 5.0, "each_ranks_s": [[seconds] for seconds in each], **others}


class BenchRanksTest(unittest.TestCase):
    def test_the_turns_of_an_op_and_size_are_one_record_over_all_runs(self):
        turns = [record("a", [3, 1]), record("b", [9]), record("a", [5], size=16), record("a", [2, 7], limit=3.0), record("b", [5])]
        merged = bench_ranks.merge_turns(turns)
        self.assertEqual([(each["op"], each["size_bytes"]) for each in merged], [("a", 8), ("b", 8), ("a", 16)])
        first = merged[0]
        self.assertEqual((first["each_s"], first["runs"], first["median_s"], first["min_s"], first["max_s"]), ([3, 1, 2, 7], 4, 2.5, 1, 7))
        self.assertEqual((first["limit_s"], first["shape_limit_s"]), (2, 4))
        self.assertEqual(first["each_ranks_s"], [[3], [1], [2], [7]])
        self.assertEqual(merged[2], turns[2])

    def test_wrong_bytes_in_one_turn_are_wrong_bytes(self):
        (merged,) = bench_ranks.merge_turns([record("a", [1]), record("a", [1], verified=False)])
        self.assertFalse(merged["verified"])

    def test_killed_nodes_add_up_and_the_most_bytes_sent_twice_count(self):
        runs = [record("a", [1], killed=1, bytes_sent_twice=9), record("a", [1], killed=2, bytes_sent_twice=3)]
        (merged,) = bench_ranks.merge_turns(runs)
        self.assertEqual((merged["killed"], merged["bytes_sent_twice"]), (3, 9))
        (merged,) = bench_ranks.merge_turns([record("a", [1]), record("a", [1])])
        self.assertNotIn("killed", merged)


if __name__ == "__main__":
    unittest_xml.main()
