"""Real daemons over a network that delays, corrupts, stops silently and breaks."""

import unittest

from tests.process.harness import ID_A, ClusterTest, sha256
from tests.process.proxy import Proxy, free_address

MIB = 1 << 20
SIZE = 8 * MIB


class NetworkTest(ClusterTest):
    def start_behind_proxy(self, name, arguments=(), **proxy):
        """Start a node that its peers reach only through a proxy."""
        listen = free_address()
        gate = Proxy(listen, **proxy)
        self.addCleanup(gate.close)
        self.cluster.start_node(name, [f"--listen={listen}", f"--advertise={gate.address}", *arguments])
        return gate

    def put_and_begin_get(self):
        path = self.cluster.make_file("file", SIZE)
        self.cluster.put("n0", path, ID_A, "--wait")
        return self.cluster.begin_get("n1", ID_A), sha256(path)

    def wait_for_bytes(self, least):
        """Wait until n1 has this many bytes, but not all."""
        self.cluster.follow(
            lambda look: any(
                copy["node"] == "n1" and least <= copy["bytes_present"] < SIZE for copy in look["copies"]
            ),
            "describe",
            ID_A,
        )

    def describe_copy(self, name):
        copies = self.cluster.ask("describe", ID_A)["copies"]
        return next(copy for copy in copies if copy["node"] == name)

    def test_a_network_with_delay_is_only_slower(self):
        self.cluster.start_shards(1)
        self.start_behind_proxy("n0", delay_s=0.02)
        self.cluster.start_node("n1")
        get, expected = self.put_and_begin_get()
        self.assertEqual(self.cluster.finish_get(get), expected)

    def test_a_flipped_bit_is_detected_and_fetched_again(self):
        self.cluster.start_shards(1)
        gate = self.start_behind_proxy("n0", ["--checksums"], corrupt_at=3 * MIB)
        self.cluster.start_node("n1", ["--checksums"])
        get, expected = self.put_and_begin_get()
        self.assertEqual(self.cluster.finish_get(get), expected)
        self.assertGreater(gate.passed, SIZE)
        self.assertGreaterEqual(self.describe_copy("n1")["repairs"], 1)

    def test_a_broken_connection_is_resumed_at_the_byte(self):
        self.cluster.start_shards(1)
        gate = self.start_behind_proxy("n0", ["--max-egress=8MB/s"])
        self.cluster.start_node("n1")
        get, expected = self.put_and_begin_get()
        self.wait_for_bytes(2 * MIB)
        gate.cut()
        self.assertEqual(self.cluster.finish_get(get), expected)
        self.assertLess(gate.passed, SIZE + MIB)

    def test_a_silent_connection_is_replaced_by_another_sender(self):
        self.cluster.start_shards(1)
        gates = {name: self.start_behind_proxy(name, ["--max-egress=8MB/s"]) for name in ("n0", "n2")}
        self.cluster.start_node("n1")
        path = self.cluster.make_file("file", SIZE)
        self.cluster.put("n0", path, ID_A, "--wait")
        self.assertEqual(self.cluster.get("n2", ID_A), sha256(path))
        get = self.cluster.begin_get("n1", ID_A)
        self.wait_for_bytes(MIB)
        # Half-open: the sender is in contact with the directory, but its bytes do not arrive.
        sender = self.describe_copy("n1")["sender"]
        gates[sender].stall()
        self.assertEqual(self.cluster.finish_get(get), sha256(path))
        copy = self.describe_copy("n1")
        self.assertNotEqual(copy["sender"], sender)
        # The directory moves the receiver, unless its pull has failed before.
        moves = self.cluster.ask("status")["shards"][0]["counters"]["relieved"]
        self.assertEqual(copy["repairs"] + moves, 1)
        self.assertLess(copy["bytes_sent_twice"], MIB)

    def start_directory_behind_proxy(self, arguments=()):
        self.cluster.start_shards(1, arguments)
        gate = Proxy(self.cluster.shards[0].address)
        self.addCleanup(gate.close)
        for name in ("n0", "n1"):
            self.cluster.start_node(name, directory=gate.address)
        self.cluster.wait_for_nodes(2)
        return gate

    def test_a_broken_connection_to_the_directory_loses_nothing(self):
        # The proxy runs in this process and can take longer than 30 ms.
        gate = self.start_directory_behind_proxy(["--reconnect-grace=2s"])
        get = self.cluster.begin_get("n1", ID_A)
        self.cluster.follow(lambda look: look["waiting"] == 1, "describe", ID_A)
        gate.cut()
        path = self.cluster.make_file("file", SIZE)
        self.cluster.put("n0", path, ID_A, "--wait")
        self.assertEqual(self.cluster.finish_get(get), sha256(path))
        counters = self.cluster.ask("status")["shards"][0]["counters"]
        self.assertEqual(counters["sessions_opened"], 2)
        self.assertEqual(counters["sessions_resumed"], 2)

    def test_a_session_with_a_silent_directory_is_resumed(self):
        gate = self.start_directory_behind_proxy()
        path = self.cluster.make_file("file", SIZE)
        self.cluster.put("n0", path, ID_A, "--wait")
        gate.stall()
        self.cluster.follow(lambda look: look["connected_nodes"] == 0, "status")
        get = self.cluster.begin_get("n1", ID_A)
        gate.resume()
        self.assertEqual(self.cluster.finish_get(get), sha256(path))


if __name__ == "__main__":
    unittest.main()
