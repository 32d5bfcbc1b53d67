"""Put on one node, get on the others: whole daemons, with and without faults."""

import hashlib
import os
import signal
import subprocess
import unittest

from tests.process.harness import DEADLINE_S, ID_A, ID_B, ClusterTest, sha256

MIB = 1 << 20


class BroadcastTest(ClusterTest):
    def start(self, nodes, shards=1, arguments=(), **settings):
        self.cluster.start_shards(shards)
        self.cluster.start_nodes(nodes, arguments, **settings)

    def test_a_file_put_on_one_node_is_fetched_by_seven_others(self):
        self.start(8)
        path = self.cluster.make_file("file", 8 * MIB)
        self.cluster.put("n0", path, ID_A)
        gets = [self.cluster.begin_get(f"n{i}", ID_A) for i in range(1, 8)]
        for get in gets:
            self.assertEqual(self.cluster.finish_get(get), sha256(path))
        described = self.cluster.await_copies(ID_A, 8)
        self.assertEqual(sum(copy["bytes_sent_twice"] for copy in described["copies"]), 0)

    def test_gets_that_wait_for_an_object_get_it_when_it_is_put(self):
        self.start(3)
        gets = [self.cluster.begin_get(f"n{i}", ID_A) for i in (1, 2)]
        self.cluster.follow(lambda look: look["waiting"] == 2, "describe", ID_A)
        path = self.cluster.make_file("file", 3 * MIB + 7)
        self.cluster.put("n0", path, ID_A)
        for get in gets:
            self.assertEqual(self.cluster.finish_get(get), sha256(path))

    def test_sizes_around_every_limit_arrive_whole(self):
        self.start(2, shards=3)
        sizes = (0, 1, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1)
        for index, size in enumerate(sizes):
            object_id = f"{index:02x}" * 19 + "cc"
            path = self.cluster.make_file(f"file{size}", size, seed=size)
            self.cluster.put("n0", path, object_id)
            self.assertEqual(self.cluster.get("n1", object_id), sha256(path), f"{size} bytes")

    def test_receivers_finish_without_a_killed_relay(self):
        # A slow network, so that the fault comes in the middle.
        self.start(6, arguments=["--max-egress=8MB/s"])
        path = self.cluster.make_file("file", 16 * MIB)
        self.cluster.put("n0", path, ID_A)
        gets = {f"n{i}": self.cluster.begin_get(f"n{i}", ID_A) for i in range(1, 6)}

        def victims(look):
            return [
                copy["node"]
                for copy in look["copies"]
                if copy["sender"] is not None and copy["descendants"] >= 1 and copy["bytes_present"] > 4 * MIB
            ]

        look = self.cluster.follow(victims, "describe", ID_A)
        victim = victims(look)[0]
        self.cluster.nodes[victim].kill()
        for name, get in gets.items():
            if name == victim:
                self.cluster.discard(get)
            else:
                self.assertEqual(self.cluster.finish_get(get), sha256(path), name)
        described = self.cluster.ask("describe", ID_A)
        self.assertGreaterEqual(sum(copy["repairs"] for copy in described["copies"]), 1)
        twice = sum(copy["bytes_sent_twice"] for copy in described["copies"])
        self.assertLessEqual(twice, MIB)

    def test_receivers_replace_a_stopped_relay(self):
        # The lease does not expire: the receivers of the stopped node must detect it.
        self.cluster.start_shards(1, ["--lease=1h"])
        self.cluster.start_nodes(4, ["--max-egress=8MB/s"])
        path = self.cluster.make_file("file", 12 * MIB)
        self.cluster.put("n0", path, ID_A)
        gets = {f"n{i}": self.cluster.begin_get(f"n{i}", ID_A) for i in range(1, 4)}

        def relays(look):
            return [copy["node"] for copy in look["copies"] if copy["sender"] and copy["descendants"] >= 1]

        victim = relays(self.cluster.follow(relays, "describe", ID_A))[0]
        with self.stopped(self.cluster.nodes[victim]):
            for name, get in gets.items():
                if name != victim:
                    self.assertEqual(self.cluster.finish_get(get), sha256(path), name)
        # The Get resumes at its offset.
        self.assertEqual(self.cluster.finish_get(gets[victim]), sha256(path))

    def test_the_death_of_the_only_holder_leaves_readers_waiting_for_a_new_put(self):
        self.start(3, arguments=["--max-egress=4MB/s"])
        path = self.cluster.make_file("file", 8 * MIB)
        self.cluster.put("n0", path, ID_A)
        get = self.cluster.begin_get("n1", ID_A)
        self.cluster.follow(
            lambda look: any(copy["pulling"] and copy["bytes_present"] > MIB for copy in look["copies"]),
            "describe",
            ID_A,
        )
        self.cluster.nodes["n0"].kill()
        # For one lease the directory still lists its copy.
        self.cluster.follow(lambda look: look["complete_copies"] == 0, "describe", ID_A)
        other = self.cluster.make_file("other", 8 * MIB + 1, seed=2)
        self.cluster.put("n2", other, ID_A)
        self.assertEqual(self.cluster.finish_get(get), sha256(other))

    def begin_half_a_put(self):
        """Start a writer that has published 4 MiB of 8 and waits for the rest."""
        put = self.cluster.begin(
            "put", "-", "--size=8MiB", f"--id={ID_A}", "-q", node="n0", stdin=subprocess.PIPE
        )
        os.write(put.stdin.fileno(), b"x" * (4 * MIB))
        self.cluster.follow(lambda look: look["copies"][0]["state"] == "writing", "describe", ID_A)
        return put

    def test_the_object_of_a_writer_that_dies_is_removed(self):
        self.start(2)
        put = self.begin_half_a_put()
        get = self.cluster.begin_get("n1", ID_A)
        self.cluster.follow(
            lambda look: any(copy["pulling"] and copy["bytes_present"] > 0 for copy in look["copies"]),
            "describe",
            ID_A,
        )
        self.cluster.discard(put)
        path = self.cluster.make_file("file", 2 * MIB)
        self.cluster.put("n0", path, ID_A)
        self.assertEqual(self.cluster.finish_get(get), sha256(path))

    def test_readers_wait_for_a_stopped_writer(self):
        self.start(2)
        put = self.begin_half_a_put()
        get = self.cluster.begin_get("n1", ID_A)
        put.send_signal(signal.SIGSTOP)
        self.cluster.follow(
            lambda look: any(copy["bytes_present"] >= 3 * MIB and copy["sender"] for copy in look["copies"]),
            "describe",
            ID_A,
        )
        put.send_signal(signal.SIGCONT)
        os.write(put.stdin.fileno(), b"x" * (4 * MIB))
        self.cluster.finish(put)
        self.assertEqual(self.cluster.finish_get(get), hashlib.sha256(b"x" * (8 * MIB)).hexdigest())

    def test_a_dead_client_releases_its_memory(self):
        self.start(1, capacity="16MiB")
        first = self.cluster.make_file("first", 10 * MIB)
        self.cluster.put("n0", first, ID_A)
        # A reader that blocks on a full pipe keeps the object mapped.
        get = self.cluster.begin("get", ID_A, "-q", node="n0")
        self.assertTrue(os.read(get.stdout.fileno(), 1))
        self.cluster.run("rm", ID_A, node="n0")
        self.cluster.discard(get)
        second = self.cluster.make_file("second", 10 * MIB, seed=2)
        self.cluster.put("n0", second, ID_B, f"--timeout={DEADLINE_S}s")
        self.assertEqual(self.cluster.get("n0", ID_B), sha256(second))


if __name__ == "__main__":
    unittest.main()
