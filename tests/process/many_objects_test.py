"""Many objects on one node, within a default system's limits on descriptors and mappings.

The ordinary run has lower limits and fewer objects. many_objects_full_test has a system's default
limits and 100,000 objects of 100 KB (10 GB of memory). Both print the overhead of an object.
"""
import os
import pathlib
import resource
import subprocess
import unittest

from tests.process.harness import ClusterTest, Daemon, own_bytes

CLIENT = os.environ.get("PHALANX_MANY_OBJECTS", os.path.abspath("tests/process/many_objects"))
FULL = os.environ.get("MANY_OBJECTS_FULL") == "1"
COUNT, DESCRIPTORS = (100_000, 1024) if FULL else (3_000, 256)
SIZE = 100_000
# The limit of additional mappings of a node, and of all mappings of a reader. A segment has up to
# 64 MiB.
MAX_MAPPINGS = 600 if FULL else 300
WARM_UP = 1_000
# The overhead of an object, in the node and in the directory.
MAX_OVERHEAD_BYTES = 1024
TIMEOUT_S = 600


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def count_mappings(pid):
    return len(pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines())


class Client(Daemon):
    """The program that puts or gets; it is up when it holds all objects."""

    def __init__(self, address, verb, count):
        self.arguments = ["many_objects", verb]
        self.log_path = "/dev/null"
        self._buffer = b""
        self.process = subprocess.Popen(
            [CLIENT, address, verb, str(count), str(SIZE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=limit_descriptors,
        )
        os.set_blocking(self.process.stdout.fileno(), False)

    def finish(self):
        self.process.stdin.close()
        return self.wait()

    def close(self):
        self.process.stdin.close()
        super().close()


class ManyObjectsTest(ClusterTest):
    def run_client(self, node, verb, count=COUNT):
        client = Client(node.client_address, verb, count)
        self.addCleanup(client.close)
        self.assertEqual(client.read_line(TIMEOUT_S), "held")
        return client

    def assert_few(self, name, pid, already=0):
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        mappings = count_mappings(pid) - already
        print(f"{name}: {descriptors} descriptors, {mappings} mappings", flush=True)
        self.assertLess(descriptors, DESCRIPTORS, name)
        self.assertLess(mappings, MAX_MAPPINGS, name)

    def test_objects_beyond_the_number_of_descriptors_are_put_and_held(self):
        shard = self.cluster.start_shards(1)[0]
        capacity = COUNT * SIZE * 11 // 10
        node = self.cluster.start_node("n0", capacity=str(capacity), preexec_fn=limit_descriptors)
        self.cluster.wait_for_nodes(1)
        # The buffers for transfers are allocated from now on.
        self.assertEqual(self.run_client(node, "put", WARM_UP).finish(), 0)
        before = {daemon: own_bytes(daemon.pid) for daemon in (shard, node)}
        mappings = count_mappings(node.pid)
        writer = self.run_client(node, "put")
        self.assertEqual(writer.finish(), 0)
        for daemon, name in ((shard, "directory"), (node, "node")):
            each = (own_bytes(daemon.pid) - before[daemon]) / (COUNT - WARM_UP)
            print(f"{name}: {each:.0f} bytes for each of {COUNT} objects", flush=True)
            # A short run would measure the noise of the allocator.
            if FULL:
                self.assertLess(each, MAX_OVERHEAD_BYTES, name)
        reader = self.run_client(node, "get")
        self.assert_few("node", node.pid, mappings)
        self.assert_few("reader", reader.pid)
        self.assertEqual(reader.finish(), 0)


if __name__ == "__main__":
    unittest.main()
