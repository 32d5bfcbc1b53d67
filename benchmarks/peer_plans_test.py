"""Tests the plans of the peers and the choice of the best algorithm."""

import unittest

from bazel import unittest_xml
from benchmarks import peer_plans, records

KIB = 1 << 10


def record(algorithm, median, op="broadcast", size=KIB, verified=True):
    return {"op": op, "size_bytes": size, "algorithm": algorithm, "median_s": median, "min_s": median, "verified": verified}


class PeerPlansTest(unittest.TestCase):
    def test_every_algorithm_of_an_op_has_a_name_of_its_own_without_blanks(self):
        lacking = {"ray": {op for op in peer_plans.OPS if op.startswith("group_")},
                   "rabit": {"reduce", "gather", "allgather", "group_reduce"}}
        for peer, ops in peer_plans.ALGORITHMS.items():
            self.assertEqual(set(ops), set(peer_plans.OPS) - lacking.get(peer, set()), peer)
            for algorithms in ops.values():
                names = [algorithm.name for algorithm in algorithms] + [peer_plans.DEFAULT]
                self.assertEqual(len(names), len(set(names)), names)
                for algorithm in algorithms:
                    self.assertEqual((algorithm.name + algorithm.settings).split(), [algorithm.name + algorithm.settings])

    def test_open_mpi_is_told_algorithm_and_segment_by_its_own_variables(self):
        lines = peer_plans.scouting_plan("openmpi", ["broadcast"], [1 << 20], 3)
        self.assertIn("broadcast pipeline/32KiB 1048576 1 1 3 2 "
                      "coll_tuned_bcast_algorithm=3,coll_tuned_bcast_algorithm_segmentsize=32768", lines)
        self.assertIn("broadcast linear 1048576 1 1 3 2 coll_tuned_bcast_algorithm=1", lines)

    def test_segments_that_hold_the_whole_size_are_not_tried(self):
        segments = {algorithm.segment for algorithm in peer_plans.candidates("openmpi", "broadcast", 8 * KIB)}
        self.assertEqual(segments, {0, 2 * KIB})

    def test_three_of_the_best_by_scouting_are_measured_beside_the_default_without_giving_up(self):
        scouted = [record("chain", 4), record("linear", 3), record("pipeline", 1, verified=False),
                   record("binary", 5), dict(record("binomial", 9), min_s=2), record("linear", 1, size=2 * KIB)]
        chosen = peer_plans.finalists(scouted)
        self.assertEqual(chosen, {("broadcast", KIB): ["binomial", "linear", "chain"], ("broadcast", 2 * KIB): ["linear"]})
        plan = [line.split() for line in
                peer_plans.measuring_plan("openmpi", ["broadcast"], [KIB, 2 * KIB, 4 * KIB], chosen, 2, 10)]
        self.assertEqual([(line[1], int(line[2])) for line in plan],
                         [("default", KIB), ("chain", KIB), ("binomial", KIB), ("linear", KIB),
                          ("default", 2 * KIB), ("linear", 2 * KIB), ("default", 4 * KIB)])
        self.assertEqual({tuple(line[3:7]) for line in plan}, {("1", "2", "10", "0")})

    def test_the_default_and_the_best_other_are_told(self):
        measured = [record("default", 3), record("chain", 5), record("linear", 4), record("binary", 1, verified=False),
                    record("default", 7, op="reduce")]
        told = [(each["op"], each["choice"], each["algorithm"]) for each in peer_plans.choose(measured)]
        self.assertEqual(told, [("broadcast", "default", "default"), ("broadcast", "best", "linear"),
                                ("reduce", "default", "default")])

    def test_the_turns_of_an_algorithm_are_one_record(self):
        turns = [dict(record("default", 0), each_s=[3, 1]), dict(record("chain", 0), each_s=[8]),
                 dict(record("default", 0, verified=False), each_s=[9])]
        default, chain = peer_plans.merge_turns(turns)
        self.assertEqual((default["algorithm"], default["median_s"], default["runs"], default["verified"]), ("default", 3, 3, False))
        self.assertEqual((chain["algorithm"], chain["min_s"]), ("chain", 8))

    def test_wrong_bytes_are_told_where_nothing_better_is_there(self):
        self.assertFalse(peer_plans.choose([record("default", 3, verified=False)])[0]["verified"])

    def test_limits_are_those_of_a_pair_and_of_the_shape_of_the_same_size(self):
        plan = peer_plans.limits_plan(["broadcast", "allreduce"], [KIB], 2, 10)
        self.assertEqual(plan, ["pair bare 1024 1 2 10 0 -", "broadcast bare 1024 1 2 10 0 -"])
        limits = [record("bare", 1, op="pair"), record("bare", 2), record("bare", 9, size=2 * KIB)]
        found = peer_plans.with_limits([record("default", 5), record("default", 6, op="allreduce")], limits)
        self.assertEqual([(each["limit_s"], each["shape_limit_s"]) for each in found], [(1, 2), (1, 0)])

    def test_an_op_of_a_group_is_called_often_if_it_is_small_or_as_often_as_the_user_wishes(self):
        sizes = [8, 1 << 20, 64 << 20]
        plan = peer_plans.measuring_plan("gloo", ["allreduce", "group_allreduce"], sizes, {}, 2, 10)
        self.assertEqual([int(line.split()[3]) for line in plan], [1, 1, 1, 1000, 32, 1])
        plan = peer_plans.measuring_plan("gloo", ["group_allreduce"], sizes, {}, 2, 10, calls=7)
        self.assertEqual([int(line.split()[3]) for line in plan], [7, 7, 7])

    def test_a_barrier_is_measured_once_for_all_sizes(self):
        plan = peer_plans.measuring_plan("openmpi", ["group_barrier"], [8, KIB], {}, 2, 10)
        self.assertEqual(plan, ["group_barrier default 0 1000 2 10 0 -"])
        scouted = [line.split()[1] for line in peer_plans.scouting_plan("openmpi", ["group_barrier"], [8, KIB], 3)]
        self.assertIn("recursive_doubling", scouted)

    def test_an_op_that_a_peer_lacks_is_named(self):
        peer_plans.check_ops(["gloo", "openmpi"], peer_plans.OPS)
        peer_plans.check_ops(["rabit"], ["broadcast", "group_allreduce", "group_barrier"])
        with self.assertRaisesRegex(records.BadInput, "ray has no group_barrier"):
            peer_plans.check_ops(["gloo", "ray"], ["allreduce", "group_barrier"])
        with self.assertRaisesRegex(records.BadInput, "rabit has no gather"):
            peer_plans.check_ops(["rabit"], ["allreduce", "gather"])

    def test_rabit_is_measured_as_it_comes(self):
        self.assertEqual(peer_plans.scouting_plan("rabit", ["group_allreduce"], [8], 3), [])
        plan = peer_plans.measuring_plan("rabit", ["group_allreduce"], [8], {}, 2, 10)
        self.assertEqual(plan, ["group_allreduce default 8 1000 2 10 0 -"])

    def test_an_unknown_name_is_named_beside_the_known_ones(self):
        self.assertEqual(peer_plans.parse_names("reduce,broadcast,reduce", peer_plans.OPS, "op"), ["reduce", "broadcast"])
        with self.assertRaisesRegex(records.BadInput, "unknown op 'foo'; there are broadcast, "):
            peer_plans.parse_names("broadcast,foo", peer_plans.OPS, "op")


if __name__ == "__main__":
    unittest_xml.main()
