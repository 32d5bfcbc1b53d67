"""Collectives that move objects. Each runs as a benchmark whose ranks verify every byte."""

import unittest

from tests.process.harness import ClusterTest


class CollectivesTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards(2)
        self.cluster.start_nodes(4)

    def check(self, op, *flags, **settings):
        for record in self.cluster.bench(op, *flags, **settings):
            self.assertGreater(record["shape_limit_s"], 0)

    def test_gather(self):
        self.check("gather")

    def test_allgather(self):
        self.check("allgather")
        # Shares of different sizes: empty, small, and large enough to come from the neighbour.
        self.check("allgather", "--stagger=0s", sizes="1000003,3,10000003")

    def test_all_to_all(self):
        self.check("all_to_all")
        self.check("all_to_all", "--with-put")


if __name__ == "__main__":
    unittest.main()
