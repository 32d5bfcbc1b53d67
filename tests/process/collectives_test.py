"""Collectives that move objects, and those of groups. Each runs as a benchmark whose ranks verify every byte."""

import json
import signal
import unittest

from tests.process.harness import ClusterTest


class CollectivesTestCase(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards(2)

    def check(self, op, *flags, **settings):
        for record in self.cluster.bench(op, *flags, **settings):
            self.assertGreater(record["shape_limit_s"], 0)


class CollectivesTest(CollectivesTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.start_nodes(4)

    def test_gather(self):
        self.check("gather")

    def test_allgather(self):
        self.check("allgather")
        # Shares of different sizes: empty, small, and large enough to come from the neighbour.
        self.check("allgather", "--stagger=0s", sizes="1000003,3,10000003")

    def test_all_to_all(self):
        self.check("all_to_all")
        self.check("all_to_all", "--with-put")

    def test_calls_of_groups_that_reduce(self):
        # Inline, and in shared memory; the last size has no equal parts for four ranks.
        sizes = "8,1KiB,262148"
        for op in ("group_allreduce", "group_reduce", "group_reduce_scatter"):
            self.check(op, "--calls=3", sizes=sizes)
        self.check("group_allreduce", "--calls=2", "--dtype=i64", "--op=max", sizes="8,64KiB")

    def test_calls_of_groups_that_move_bytes(self):
        for op in ("group_broadcast", "group_allgather", "group_all_to_all"):
            self.check(op, "--calls=3", sizes="1,1KiB,262147")

    def test_no_rank_leaves_a_barrier_before_all_have_come(self):
        self.check("group_barrier", sizes="0")

    def test_calls_of_sessions(self):
        self.check("job_allreduce", "--calls=3", sizes="8,1KiB,262148")
        self.check("job_allreduce", "--calls=2", "--dtype=i64", "--op=max", sizes="8,64KiB")

    def test_small_calls_are_repeated_a_thousand_times_and_large_ones_less(self):
        records = self.cluster.bench("group_broadcast", sizes="8,8MiB")
        self.assertEqual([record["calls"] for record in records], [1000, 4])

    def test_a_killed_member_is_not_in_the_next_result_of_the_others(self):
        shared = ["bench", "group_allreduce", "--world=4", "--session=kill", "--sizes=8KiB", "--calls=5000", "--runs=1",
                  "--warmup=0", "--kill-member=50ms", "--json"]
        ranks = [self.cluster.begin(*shared, f"--rank={rank}", node=name) for rank, name in enumerate(self.cluster.nodes)]
        self.cluster.finish(ranks[3], expect=-signal.SIGKILL)
        [record] = json.loads([self.cluster.finish(rank) for rank in ranks[:3]][0])
        self.assertEqual((record["killed"], record["verified"]), (1, True))


class LivesTest(CollectivesTestCase):
    """Each node is a host: when the only rank of one dies, another one has what it has kept."""

    def setUp(self):
        super().setUp()
        self.cluster.start_hosts("abcd")

    def test_a_next_life_reads_the_checkpoint_of_each_run(self):
        # So many runs that every rank has its turn.
        for op in ("job_checkpoint", "job_local_checkpoint", "job_local_counted"):
            self.check(op, "--runs=4", sizes="1,1MiB")

    def test_a_lazy_checkpoint_writes_nothing_until_a_next_life_needs_it(self):
        for record in self.cluster.bench("job_lazy_checkpoint", "--runs=4", sizes="1,1MiB"):
            self.assertEqual((record["calls"], record["verified"]), (100, True))


if __name__ == "__main__":
    unittest.main()
