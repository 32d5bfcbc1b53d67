"""Broadcasts to nodes before a Get there, and to nodes that join later."""

import json
import unittest

from tests.process.harness import (
    ERROR,
    ID_A,
    ID_B,
    NOT_FOUND,
    TIMED_OUT,
    UNAVAILABLE,
    USAGE,
    ClusterTest,
    sha256,
)

MIB = 1 << 20
ID_C = "cc" * 20
# Slow enough for faults in the middle.
SLOW = ["--max-egress=8MB/s"]


class StickyTest(ClusterTest):
    def start(self, nodes, arguments=(), shards=1, **settings):
        self.cluster.start_shards(shards)
        self.cluster.start_nodes(nodes, arguments, **settings)

    def put(self, size, object_id=ID_A, node="n0"):
        path = self.cluster.make_file(f"{object_id}.{size}", size)
        self.cluster.put(node, path, object_id)
        return path

    def begin(self, *arguments, object_id=ID_A, node="n0"):
        return self.cluster.begin("broadcast", object_id, "--json", *arguments, node=node)

    def finish(self, process):
        """Return the number of nodes that have the object."""
        return json.loads(self.cluster.finish(process))["nodes"]

    def broadcast(self, *arguments, object_id=ID_A, node="n0"):
        return self.finish(self.begin(*arguments, object_id=object_id, node=node))

    def refusal(self, expect, *arguments, object_id=ID_A, node="n0"):
        """Return the output of a broadcast command that exits with `expect`."""
        return self.cluster.finish(self.begin(*arguments, object_id=object_id, node=node), expect=expect)

    @staticmethod
    def holders(look):
        return [copy["node"] for copy in look["copies"] if copy["complete"]]

    def described(self, object_id=ID_A):
        return self.cluster.ask("describe", object_id)

    def await_copy(self, node, object_id=ID_A):
        return self.cluster.follow(lambda look: node in self.holders(look), "describe", object_id)

    def await_half_way(self):
        """Wait until some node has a part of the object."""
        return self.cluster.follow(
            lambda look: any(0 < copy["bytes_present"] and not copy["complete"] for copy in look["copies"]),
            "describe",
            ID_A,
        )

    def assert_is_there(self, node, path, object_id=ID_A):
        """Read the object while the directory is stopped: the bytes must be on the node."""
        with self.stopped(self.cluster.shards[0]):
            self.assertEqual(self.cluster.get(node, object_id), sha256(path))

    def test_the_named_nodes_have_the_object_when_the_call_ends(self):
        self.start(4)
        path = self.put(3 * MIB)
        self.assertEqual(self.broadcast("--to=n2", node="n1"), 1)
        self.assertEqual(sorted(self.holders(self.described())), ["n0", "n2"])
        self.assert_is_there("n2", path)
        self.assertEqual(self.broadcast(node="n1"), 4)
        self.assertEqual(len(self.holders(self.described())), 4)
        for node in ("n1", "n3"):
            self.assert_is_there(node, path)
        self.assertFalse(self.described()["sticky"])
        self.cluster.start_node("n4")
        self.cluster.wait_for_nodes(5)
        self.assertNotIn("n4", self.holders(self.described()))

    def test_a_small_object_is_on_all_nodes_too(self):
        self.start(3)
        path = self.put(100)
        self.assertEqual(self.broadcast(), 3)
        self.assert_is_there("n2", path)

    def test_nodes_that_join_later_have_it_until_the_stop(self):
        self.start(2)
        path = self.put(3 * MIB)
        self.put(100, ID_B)
        self.assertEqual(self.broadcast("--sticky"), 2)
        self.assertEqual(self.broadcast("--sticky", object_id=ID_B), 2)
        self.assertTrue(self.described()["sticky"])
        self.cluster.start_node("n2")
        self.await_copy("n2")
        self.assert_is_there("n2", path)
        self.cluster.run("broadcast", ID_A, "--stop", node="n1")
        self.assertFalse(self.described()["sticky"])
        self.cluster.start_node("n3")
        # The directory would send the stopped object first.
        self.await_copy("n3", ID_B)
        look = self.described()
        self.assertNotIn("n3", [copy["node"] for copy in look["copies"]])
        self.assertNotIn("n3", look["waiting_nodes"])
        self.assertEqual(len(self.holders(look)), 3, "those that have it keep it")

    def test_a_node_that_joins_later_can_be_named(self):
        self.start(1)
        self.put(MIB)
        self.assertEqual(self.broadcast("--sticky", "--to=n2"), 0)
        self.cluster.start_node("n1")
        self.cluster.start_node("n2")
        self.await_copy("n2")
        self.assertNotIn("n1", self.holders(self.described()))

    def test_a_broadcast_ends_when_the_object_is_deleted(self):
        self.start(3, SLOW)
        self.put(16 * MIB)
        sending = self.begin("--sticky", node="n1")
        self.await_half_way()
        self.cluster.run("rm", ID_A, node="n2")
        self.assertIn("deleted", self.cluster.finish(sending, expect=NOT_FOUND))
        self.put(MIB)
        self.assertFalse(self.described()["sticky"], "what is put later is another object")
        self.put(100, ID_B)
        self.broadcast("--sticky", object_id=ID_B)
        self.cluster.start_node("n3")
        self.await_copy("n3", ID_B)
        self.assertNotIn("n3", self.holders(self.described()))

    def test_a_broadcast_outlives_its_client(self):
        self.start(4, SLOW)
        path = self.put(32 * MIB)
        client = self.begin("--sticky", node="n1")
        self.await_half_way()
        self.cluster.discard(client)
        other = self.begin("--sticky", node="n1")
        self.await_half_way()
        self.cluster.nodes["n1"].kill()
        self.cluster.finish(other, expect=UNAVAILABLE)
        for node in ("n2", "n3"):
            self.await_copy(node)
        self.cluster.start_node("n4", SLOW)
        self.await_copy("n4")
        self.assert_is_there("n4", path)

    def test_a_broadcast_outlives_the_directory(self):
        self.start(3, SLOW)
        path = self.put(16 * MIB)
        sending = self.begin("--sticky", node="n1")
        self.await_half_way()
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.assertEqual(self.finish(sending), 3)
        self.assertEqual(len(self.holders(self.described())), 3)
        # The client has ended: only the nodes still have the sticky marks.
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.cluster.start_node("n3", SLOW)
        self.assertTrue(self.await_copy("n3")["sticky"])
        self.assert_is_there("n3", path)
        self.cluster.run("broadcast", ID_A, "--stop", node="n3")
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.assertFalse(self.cluster.await_copies(ID_A, 4)["sticky"], "nor is it forgotten that it was stopped")

    def test_a_waiting_client_does_not_undo_a_stop(self):
        self.start(2, capacity="16MiB")
        self.put(12 * MIB, ID_B, node="n1")
        self.put(12 * MIB)
        sending = self.begin("--sticky")
        self.cluster.follow(lambda look: look["sticky"], "describe", ID_A)
        self.cluster.run("broadcast", ID_A, "--stop", node="n0")
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.cluster.run("rm", ID_B, node="n0")
        self.assertEqual(self.finish(sending), 2)
        self.assertFalse(self.described()["sticky"])
        self.put(100, ID_B)
        self.broadcast("--sticky", object_id=ID_B)
        self.cluster.start_node("n2")
        self.await_copy("n2", ID_B)
        self.assertNotIn("n2", self.holders(self.described()))

    def test_a_broadcast_does_not_wait_for_a_node_that_dies_with_the_directory(self):
        self.start(3, capacity="16MiB")
        self.put(12 * MIB, ID_B, node="n1")
        self.put(12 * MIB, ID_C, node="n2")
        self.put(12 * MIB)
        sending = self.begin("--to=n1", "--to=n2")
        self.cluster.follow(lambda look: len(look["waiting_nodes"]) == 2, "describe", ID_A)
        # Its answer arrives after all messages to n0 about the first one.
        self.assertEqual(self.broadcast("--to=n0"), 1)
        self.cluster.shards[0].kill()
        self.cluster.nodes["n2"].kill()
        self.cluster.restart_shard(0)
        self.cluster.run("rm", ID_B, node="n0")
        self.assertEqual(self.finish(sending), 1)

    def test_a_broadcast_does_not_wait_for_a_dead_node(self):
        self.start(4, SLOW)
        self.put(16 * MIB)
        sending = self.begin()
        self.await_half_way()
        self.cluster.nodes["n2"].kill()
        self.assertEqual(self.finish(sending), 3)

    def test_a_broadcast_waits_for_a_full_node(self):
        self.start(2, capacity="16MiB")
        self.put(12 * MIB, ID_B, node="n1")
        self.put(12 * MIB)
        error = self.refusal(TIMED_OUT, "--timeout=300ms")
        self.assertIn(ID_A, error)
        sending = self.begin("--to=n1")
        self.cluster.run("rm", ID_B, node="n0")
        self.assertEqual(self.finish(sending), 1)

    def test_a_node_refuses_an_object_that_is_too_large(self):
        self.start(2)
        self.cluster.start_node("small", capacity="4MiB")
        self.cluster.wait_for_nodes(3)
        self.put(8 * MIB)
        error = self.refusal(ERROR)
        for words in ("RESOURCE_EXHAUSTED", ID_A, "1 of 3 nodes have not taken it: small"):
            self.assertIn(words, error)
        self.assertEqual(sorted(self.holders(self.described())), ["n0", "n1"])

    def test_an_invalid_broadcast_is_refused(self):
        self.start(2, shards=2)
        self.put(100)
        self.assertIn("nothing was put under this id", self.refusal(NOT_FOUND, object_id=ID_C))
        self.assertIn("nothing was put under this id", self.refusal(NOT_FOUND, "--sticky", object_id=ID_C))
        error = self.refusal(USAGE, "--to=n1", "--to=zed")
        self.assertIn("no node is called zed; there are n0, n1 (`phalanx status` lists them)", error)
        self.assertEqual(self.holders(self.described()), ["n0"], "nothing is begun")
        self.assertIn("256", self.refusal(USAGE, *[f"--to=n{i}" for i in range(257)]))
        self.assertIn("256", self.refusal(USAGE, "--to=" + 257 * "n"))
        self.assertIn("--stop", self.refusal(USAGE, "--stop", "--sticky"))
        self.cluster.run("rm", ID_A, node="n0")
        self.assertIn("it was deleted", self.refusal(NOT_FOUND))
        self.cluster.run("broadcast", ID_A, "--stop", node="n0", expect=NOT_FOUND)


if __name__ == "__main__":
    unittest.main()
