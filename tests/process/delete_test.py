"""Names that are deleted, put again and read on every node, while holders are stopped, cut off from the
directory or killed, and the directory restarts.

The oracle: a Get that begins after a Delete was acknowledged never returns what was deleted. Each round
puts a new, greater number under a name, so that a number less than the last is out of date.

PHALANX_TEST_READS sets the number of reads.
"""

import itertools
import os
import random
import re
import unittest

from tests.process.harness import ClusterTest, Holder
from tests.process.proxy import Proxy

READS = int(os.environ.get("PHALANX_TEST_READS", "4000"))
NODES = [f"n{index}" for index in range(4)]
LEASE_MS = 500
# Reads of a node in a round. None of them waits.
BURST = 100
SIZES = (64, 200_000)  # inline, and pulled from a holder


class DeleteTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards(1, [f"--lease={LEASE_MS}ms"])
        self.gates = {}
        self.readers = {}
        self.others = {}  # a second client for each node, for calls that wait
        for name in NODES:
            self.gates[name] = Proxy(self.cluster.shards[0].address)
            self.addCleanup(self.gates[name].close)
            self.start_node(name)
        self.addCleanup(self.close_readers)
        self.cluster.wait_for_nodes(len(NODES))
        self.numbers = itertools.count(1)
        self.reads = 0
        self.round = ""

    def start_node(self, name):
        self.cluster.start_node(name, directory=self.gates[name].address)
        for readers in (self.readers, self.others):
            if name in readers:
                readers[name].kill()
            readers[name] = Holder(self.cluster.nodes[name])

    def close_readers(self):
        for reader in [*self.readers.values(), *self.others.values()]:
            reader.kill()

    def ok(self, reader):
        answer = reader.finish()
        self.assertTrue(answer.startswith("OK"), f"{answer}\n{self.cluster.logs()}")
        return answer.removeprefix("OK").strip()

    def do(self, name, *words):
        self.readers[name].begin(*words)
        return self.ok(self.readers[name])

    def put(self, name, key):
        number = next(self.numbers)
        self.do(name, "number", key, number, random.choice(SIZES))
        return number

    def check(self, answer, least, where):
        """Count what a `read` returned, and fail if it is out of date."""
        counts = {number: int(count) for number, count in re.findall(r"(\S+):(\d+)", answer)}
        self.reads += sum(counts.values())
        stale = [number for number in counts if number != "-" and int(number) < least]
        self.assertFalse(stale, f"{self.round}: {where} returns {answer}, and everything before {least} was deleted")
        return counts

    def read_everywhere(self, key, least, names):
        """Read without waiting, on all these nodes at once; then wait for the last number."""
        for name in names:
            self.readers[name].begin("read", key, BURST, 0)
        for name in names:
            self.check(self.ok(self.readers[name]), least, name)
        for name in names:
            self.readers[name].begin("read", key, 1, 30_000)
        for name in names:
            counts = self.check(self.ok(self.readers[name]), least, name)
            self.assertEqual(counts, {str(least): 1}, name)

    def delete_and_put(self, key, deleter):
        """Delete, and put the next number at once; return it."""
        self.ok(self.others[deleter])
        return self.put(deleter, key)

    # ---- a fault at `victim`, which has a copy, around a Delete at another node

    def undisturbed(self, key, deleter, victim):
        self.others[deleter].begin("delete", key, 30_000)
        return self.delete_and_put(key, deleter)

    def stopped_for_longer_than_a_lease(self, key, deleter, victim):
        """Reads begin after the acknowledgement, while the node is stopped, and are answered afterwards."""
        with self.stopped(self.cluster.nodes[victim]):
            self.others[deleter].begin("delete", key, 30_000)
            least = self.delete_and_put(key, deleter)
            self.readers[victim].begin("read", key, BURST, 0)
        self.check(self.ok(self.readers[victim]), least, f"{victim}, which was stopped,")
        return least

    def stopped_shortly(self, key, deleter, victim):
        with self.stopped(self.cluster.nodes[victim]):
            self.others[deleter].begin("delete", key, 30_000)
            self.cluster.follow(lambda look: look["deleted"], "describe", f"--name={key}")
        return self.delete_and_put(key, deleter)

    def cut_off(self, key, deleter, victim):
        """The node runs, and its clients reach it; it does not reach the directory."""
        self.gates[victim].stall()
        self.others[deleter].begin("delete", key, 30_000)
        least = self.delete_and_put(key, deleter)
        self.readers[victim].begin("read", key, BURST, 0)
        counts = self.check(self.ok(self.readers[victim]), least, f"{victim}, which is cut off,")
        self.assertEqual(counts, {"-": BURST})
        self.readers[victim].begin("read", key, 1, 30_000)
        self.gates[victim].resume()
        self.check(self.ok(self.readers[victim]), least, f"{victim}, which was cut off,")
        return least

    def killed(self, key, deleter, victim):
        self.others[deleter].begin("delete", key, 30_000)
        self.cluster.nodes[victim].kill()
        least = self.delete_and_put(key, deleter)
        self.start_node(victim)
        return least

    def directory_restarts(self, key, deleter, victim):
        """The directory dies between the Delete and its acknowledgement."""
        with self.stopped(self.cluster.nodes[victim]):
            self.others[deleter].begin("delete", key, 30_000)
            self.cluster.follow(lambda look: look["deleted"], "describe", f"--name={key}")
            self.cluster.shards[0].kill()
            self.cluster.restart_shard(0, [f"--lease={LEASE_MS}ms"])
        return self.delete_and_put(key, deleter)

    FAULTS = (
        undisturbed,
        stopped_for_longer_than_a_lease,
        stopped_shortly,
        cut_off,
        killed,
        directory_restarts,
    )

    def test_no_get_returns_what_was_deleted_before_it(self):
        random.seed(21)
        for index in itertools.count():
            fault = self.FAULTS[index % len(self.FAULTS)]
            key = f"key/{index % 3}"
            putter, deleter, victim = random.sample(NODES, 3)
            self.round = f"round {index}, {fault.__name__}"
            if index < 3:
                self.put(putter, key)
            for name in NODES:
                self.readers[name].begin("read", key, 1, 30_000)
            for name in NODES:
                self.ok(self.readers[name])
            least = fault(self, key, deleter, victim)
            self.read_everywhere(key, least, NODES)
            if self.reads >= READS:
                break
        print(f"{self.reads} reads, none of them out of date")

    def test_the_error_of_a_delete_that_waits_names_the_node(self):
        self.put("n0", "x")
        self.do("n1", "read", "x", 1, 30_000)
        with self.stopped(self.cluster.nodes["n1"]):
            self.others["n0"].begin("delete", "x", 300)
            answer = self.others["n0"].finish()
        self.assertIn("DEADLINE_EXCEEDED", answer)
        self.assertIn("waits for the confirmation of node n1", answer)

    def test_a_drawn_id_is_served_without_the_directory(self):
        path = self.cluster.make_file("file", 100_000)
        object_id = self.cluster.run("put", path, node="n0").split()[0]
        self.cluster.get("n1", object_id)
        named = self.cluster.run("put", path, "--name", "file", node="n0").split()[0]
        self.cluster.get("n1", named)
        self.gates["n1"].stall()
        self.cluster.follow(lambda look: look["connected_nodes"] == len(NODES) - 1, "status")
        self.cluster.get("n1", object_id)
        error = self.cluster.run("get", named, "--timeout=1s", node="n1", expect=4)
        self.assertIn("out of touch", error)


if __name__ == "__main__":
    unittest.main()
