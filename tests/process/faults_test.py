"""Every kind of process killed and stopped at several points of a broadcast. The other processes are
not disturbed more than necessary."""

import contextlib
import os
import signal
import subprocess
import unittest

from tests.process.harness import ID_A, ClusterTest, of_this_shard, sha256

MIB = 1 << 20
SIZE = 12 * MIB
# The bytes of the slowest receiver at the time of the fault.
POINTS = {"at_the_start": 1, "half_way": SIZE // 2, "near_the_end": SIZE - 2 * MIB}
READERS = ("n1", "n2", "n3", "n4")
# The lease never expires: the receivers of a stopped node must detect it.
LONG_LEASE = "1h"


class FaultsTest(ClusterTest):
    """n0 puts while n1..n4 get, at about 16 MB/s. The tests are generated below, one for each victim,
    signal and point."""

    def start(self, lease=None):
        self.cluster.start_shards(1, [f"--lease={lease}"] if lease else [])
        self.cluster.start_nodes(5, ["--max-egress=16MB/s"])
        self.path = self.cluster.make_file("file", SIZE)
        self.expected = sha256(self.path)

    def begin(self, lease=None):
        """Start the writer and the readers; the writer has put a part and waits for the rest."""
        self.start(lease)
        self.writer = self.cluster.begin(
            "put", "-", f"--size={SIZE}", f"--id={ID_A}", "-q", node="n0", stdin=subprocess.PIPE
        )
        self.cluster.follow(lambda look: True, "status")
        self.readers = {name: self.cluster.begin_get(name, ID_A) for name in READERS}

    def write(self, begin, end):
        with open(self.path, "rb") as file:
            file.seek(begin)
            left = file.read(end - begin)
        # The reader of the pipe can be dead.
        with contextlib.suppress(BrokenPipeError):
            while left:
                left = left[os.write(self.writer.stdin.fileno(), left) :]

    def wait_until_all_have(self, least):
        def all_have(look):
            have = {copy["node"]: copy["bytes_present"] for copy in look["copies"]}
            return all(have.get(name, 0) >= least for name in READERS)

        self.cluster.follow(all_have, "describe", ID_A)

    def reach(self, point, lease=None):
        """Bring all readers to this point, with bytes left to arrive."""
        self.begin(lease)
        # The writer publishes whole MiB.
        upto = min(SIZE - MIB, (point // MIB + 1) * MIB)
        self.write(0, upto)
        self.wait_until_all_have(min(point, upto))
        self.rest = upto

    def relay(self):
        """Return a reader that feeds another reader which lacks bytes."""

        def relays(look):
            return [copy["node"] for copy in look["copies"] if copy["sender"] and copy["descendants"] > 0]

        return relays(self.cluster.follow(relays, "describe", ID_A))[0]

    def leaf(self):
        copies = self.cluster.ask("describe", ID_A)["copies"]
        return next(copy["node"] for copy in copies if copy["sender"] and copy["descendants"] == 0)

    def finish(self, but=()):
        self.write(self.rest, SIZE)
        self.cluster.finish(self.writer)
        for name, get in self.readers.items():
            if name not in but:
                self.assertEqual(self.cluster.finish_get(get), self.expected, name)

    # ---- victims

    def kill_relay(self, point):
        self.reach(point)
        victim = self.relay()
        self.cluster.nodes[victim].kill()
        self.cluster.discard(self.readers[victim])
        self.finish(but=[victim])

    def stop_relay(self, point):
        self.reach(point, LONG_LEASE)
        victim = self.relay()
        with self.stopped(self.cluster.nodes[victim]):
            self.finish(but=[victim])
        self.assertEqual(self.cluster.finish_get(self.readers[victim]), self.expected)

    def kill_leaf(self, point):
        self.reach(point)
        victim = self.leaf()
        self.cluster.nodes[victim].kill()
        self.cluster.discard(self.readers[victim])
        self.finish(but=[victim])

    def stop_leaf(self, point):
        self.reach(point)
        victim = self.leaf()
        with self.stopped(self.cluster.nodes[victim]):
            self.finish(but=[victim])
        self.assertEqual(self.cluster.finish_get(self.readers[victim]), self.expected)

    def kill_directory(self, point):
        self.reach(point)
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.finish()

    def stop_directory(self, point):
        self.reach(point)
        with self.stopped(self.cluster.shards[0]):
            self.write(self.rest, SIZE)
            self.rest = SIZE
            # The last bytes are published when the pipe has ended.
            self.writer.stdin.close()
            self.writer.stdin = None
            # The other receivers continue without it.
            first = READERS[0]
            self.assertEqual(self.cluster.finish_get(self.readers[first]), self.expected)
        self.finish(but=[first])

    def kill_reader(self, point):
        self.reach(point)
        self.cluster.discard(self.readers["n2"])
        self.finish(but=["n2"])

    def stop_reader(self, point):
        self.reach(point)
        self.readers["n2"].send_signal(signal.SIGSTOP)
        self.finish(but=["n2"])
        self.readers["n2"].send_signal(signal.SIGCONT)
        self.assertEqual(self.cluster.finish_get(self.readers["n2"]), self.expected)

    def kill_writer(self, point):
        self.reach(point)
        self.cluster.discard(self.writer)
        # Its object is void on all nodes; another attempt with other bytes replaces it.
        other = self.cluster.make_file("other", SIZE + 1, seed=2)
        self.cluster.put("n3", other, ID_A)
        for name, get in self.readers.items():
            self.assertEqual(self.cluster.finish_get(get), sha256(other), name)

    def stop_writer(self, point):
        self.reach(point)
        self.writer.send_signal(signal.SIGSTOP)
        # A new reader finds the existing copy.
        get = self.cluster.begin_get("n0", ID_A)
        self.writer.send_signal(signal.SIGCONT)
        self.finish()
        self.assertEqual(self.cluster.finish_get(get), self.expected)

    def kill_writers_node(self, point):
        self.reach(point)
        self.cluster.nodes["n0"].kill()
        self.cluster.discard(self.writer)
        other = self.cluster.make_file("other", SIZE + 1, seed=2)
        # Until the lease expires the lost attempt can still return, and then it wins.
        self.cluster.follow(
            lambda look: all(node["name"] != "n0" or not node["connected_shards"] for node in look["nodes"]),
            "status",
        )
        self.cluster.put("n3", other, ID_A)
        for name, get in self.readers.items():
            self.assertEqual(self.cluster.finish_get(get), sha256(other), name)

    def stop_writers_node(self, point):
        self.reach(point, LONG_LEASE)
        with self.stopped(self.cluster.nodes["n0"]):
            # Long enough for its receivers to give it up.
            self.cluster.follow(
                lambda look: not any(copy["pulling"] and copy["sender"] == "n0" for copy in look["copies"]),
                "describe",
                ID_A,
            )
        self.finish()


VICTIMS = ("relay", "leaf", "directory", "reader", "writer", "writers_node")


def add_tests():
    for victim in VICTIMS:
        for verb in ("kill", "stop"):
            for name, point in POINTS.items():

                def test(self, verb=verb, victim=victim, point=point):
                    getattr(self, f"{verb}_{victim}")(point)

                setattr(FaultsTest, f"test_{verb}_{victim}_{name}", test)


add_tests()


def load_tests(loader, tests, pattern):
    return of_this_shard(tests)


if __name__ == "__main__":
    unittest.main()
