"""Reductions by whole daemons on loopback, every element checked."""

import array
import json
import os
import unittest

from tests.process.harness import DEADLINE_S, ERROR, TIMED_OUT, USAGE, ClusterTest

NODES = 8
MIB = 1 << 20
TARGET = "ff" * 20


def source_id(index):
    return f"{index + 1:02x}" * 20


def element(index, place):
    """Return an element of source `index`; sums of many are exact in every dtype used here."""
    return (place * 7 + index) % 31


def source(typecode, count, index):
    return array.array(typecode, [element(index, place) for place in range(count)])


def sum_of(typecode, count, indexes):
    return array.array(typecode, [sum(element(index, place) for index in indexes) for place in range(count)])


class ReduceTest(ClusterTest):
    def start(self, shards=1, nodes=NODES, arguments=()):
        self.cluster.start_shards(shards)
        self.cluster.start_nodes(nodes, arguments)

    def put(self, index, values, node=None):
        path = self.cluster.path(f"source{index}")
        with open(path, "wb") as file:
            values.tofile(file)
        self.cluster.put(node or f"n{index % len(self.cluster.nodes)}", path, source_id(index))

    def begin_reduce(self, indexes, *arguments, node="n0", target=TARGET):
        return self.cluster.begin(
            "reduce", target, *map(source_id, indexes), f"--timeout={DEADLINE_S}s", "--json", *arguments, node=node
        )

    def finish_reduce(self, process):
        """Return the indexes of the sources in the result."""
        names = {source_id(index): index for index in range(64)}
        return [names[name] for name in json.loads(self.cluster.finish(process))["reduced_from"]]

    def reduce(self, indexes, *arguments, node="n0", target=TARGET):
        return self.finish_reduce(self.begin_reduce(indexes, *arguments, node=node, target=target))

    def refused(self, message, indexes, *arguments, status=USAGE, target=TARGET, node="n0"):
        process = self.begin_reduce(indexes, *arguments, target=target, node=node)
        error = self.cluster.finish(process, expect=status)
        self.assertIn(message, error)
        self.assertIn(target, error)

    def values(self, typecode, node="n0", target=TARGET):
        get = self.cluster.begin_get(node, target)
        self.cluster.finish_get(get)
        values = array.array(typecode)
        with open(get.output, "rb") as file:
            values.frombytes(file.read())
        os.unlink(get.output)
        return values

    def check_sum(self, shards, count, dtype="f32", typecode="f"):
        self.start(shards)
        for index in range(NODES):
            self.put(index, source(typecode, count, index))
        went_in = self.reduce(range(NODES), f"--dtype={dtype}")
        self.assertEqual(sorted(went_in), list(range(NODES)))
        expected = sum_of(typecode, count, range(NODES))
        self.assertEqual(self.values(typecode), expected)
        self.assertEqual(self.values(typecode, node="n5"), expected)

    def test_a_sum_of_1_mib_on_each_of_8_nodes(self):
        self.check_sum(shards=1, count=MIB // 4)

    def test_a_sum_of_1_kib_on_each_of_8_nodes(self):
        self.check_sum(shards=1, count=256)

    def test_sources_and_target_on_three_shards(self):
        self.check_sum(shards=3, count=MIB // 4)

    def test_small_sources_and_target_on_three_shards(self):
        self.check_sum(shards=3, count=256)

    def test_a_sum_of_bytes_of_an_odd_size(self):
        self.check_sum(shards=1, count=300_007, dtype="u8", typecode="B")

    def test_sources_put_after_the_reduce_began_and_several_on_one_node(self):
        self.start(nodes=2)
        process = self.begin_reduce(range(5))
        for index in (4, 2, 0, 3, 1):
            self.put(index, source("f", MIB // 4, index), node=f"n{index % 2}")
        self.assertEqual(sorted(self.finish_reduce(process)), list(range(5)))
        self.assertEqual(self.values("f", node="n1"), sum_of("f", MIB // 4, range(5)))

    def check_subset(self, shards):
        self.start(shards)
        for index in (1, 3, 4, 6, 7, 0):  # 2 and 5 are never put
            self.put(index, source("f", MIB // 4, index))
        went_in = self.reduce(range(NODES), "--num-objects=4")
        self.assertEqual(len(set(went_in)), 4)
        self.assertFalse({2, 5} & set(went_in))
        self.assertEqual(self.values("f"), sum_of("f", MIB // 4, went_in))

    def test_any_four_of_eight_sources_while_two_are_missing(self):
        self.check_subset(shards=1)

    def test_any_four_of_eight_on_three_shards(self):
        self.check_subset(shards=3)

    def test_the_fixed_order_is_the_left_fold_of_the_list_in_any_order_of_arrival(self):
        for shards, arrival in ((1, (2, 1, 0)), (3, (1, 0, 2))):
            with self.subTest(shards=shards):
                self.setUp()
                self.start(shards, nodes=3)
                process = self.begin_reduce((0, 1, 2), "--order=fixed")
                for index in arrival:
                    value = (1e8, 1.0, -1e8)[index]
                    self.put(index, array.array("f", [value] * 1000))
                # (1e8 + 1) - 1e8 in 24 bits of precision.
                self.assertEqual(self.finish_reduce(process), [0, 1, 2])
                self.assertEqual(self.values("f"), array.array("f", [0.0] * 1000))
                self.reduce((0, 2, 1), "--order=fixed", target="fe" * 20)
                self.assertEqual(self.values("f", target="fe" * 20), array.array("f", [1.0] * 1000))
                self.cluster.close()

    def test_each_bad_argument_is_refused_and_named(self):
        self.start(nodes=2)
        self.put(0, source("f", 1000, 0))
        self.put(1, source("f", 1000, 1))
        self.put(2, source("f", 999, 2))
        self.put(3, source("B", 1001, 3))
        self.refused("is given twice", (0, 1, 0))
        self.refused("the target is among its own sources", (0, 1), target=source_id(1))
        self.refused("no bit-or of f32", (0, 1), "--op=bit-or")
        self.refused("no mean of i32", (0, 1), "--op=mean", "--dtype=i32")
        self.refused("3 of 2 sources", (0, 1), "--num-objects=3")
        self.refused(source_id(2), (0, 1, 2))  # of another size
        self.refused(source_id(3), (3,), target="fd" * 20)  # no whole elements
        # The refused requests do not affect a valid one.
        self.assertEqual(sorted(self.reduce((0, 1))), [0, 1])

    def test_the_same_reduction_joins_and_another_is_refused(self):
        self.start(nodes=3)
        first = self.begin_reduce((0, 1))
        self.cluster.follow(lambda look: look["reduction"] is not None, "describe", TARGET)
        second = self.begin_reduce((0, 1), node="n1")
        self.refused("another reduction", (0, 1), "--op=prod", node="n2", status=ERROR)
        self.refused("another reduction", (0, 2), node="n2", status=ERROR)
        for index in (0, 1):
            self.put(index, source("f", MIB // 4, index))
        self.assertEqual(sorted(self.finish_reduce(first)), [0, 1])
        self.assertEqual(sorted(self.finish_reduce(second)), [0, 1])
        # The reduction is over: the same call again returns at once.
        self.assertEqual(sorted(self.reduce((0, 1), node="n2")), [0, 1])
        self.refused("what differs: sources", (0, 2), node="n1", status=ERROR)

    def test_a_target_that_was_put_is_not_a_result(self):
        self.start(nodes=2)
        self.put(0, source("f", 1000, 0))
        self.put(1, source("f", 1000, 1))
        self.cluster.await_copies(source_id(1), 1)
        self.refused("not its result", (0,), target=source_id(1), status=ERROR)

    def test_a_reduction_without_its_sources_ends_at_its_deadline(self):
        self.start(nodes=2)
        self.put(0, source("f", 1000, 0))
        self.refused("", (0, 1), "--timeout=200ms", status=TIMED_OUT)

    def test_every_reader_gets_the_sources_of_a_result(self):
        self.start(nodes=3)
        for index in range(3):
            self.put(index, source("f", 1000, index))
        self.reduce(range(3))
        result = json.loads(self.cluster.run("reduce", "--reduced-from", TARGET, "--json", node="n2"))
        self.assertEqual(sorted(result["reduced_from"]), [source_id(index) for index in range(3)])


class ReducingBenchmarksTest(ClusterTest):
    """Every rank verifies every element."""

    def setUp(self):
        super().setUp()
        self.cluster.start_shards(1)
        self.cluster.start_nodes(4)

    def test_reduce(self):
        self.cluster.bench("reduce")
        self.cluster.bench("reduce", "--dtype=f16", "--op=max", "--order=fixed")
        self.cluster.bench("reduce", "--subset=2", "--absent=1")
        self.cluster.bench("reduce", "--stagger=5ms")

    def test_allreduce(self):
        self.cluster.bench("allreduce")
        self.cluster.bench("allreduce", "--dtype=bf16")

    def test_reduce_scatter(self):
        self.cluster.bench("reduce_scatter")
        # Fewer elements than ranks.
        self.cluster.bench("reduce_scatter", "--dtype=i64", sizes="16")


if __name__ == "__main__":
    unittest.main()
