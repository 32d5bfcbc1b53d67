"""A large object is put on one node, and another node fetches it whole and in ranges.

The ordinary run uses 80 MiB; large_object_full_test uses 5 GiB, and needs 11 GB of memory.
"""

import hashlib
import os
import subprocess
import unittest

from tests.process.harness import ERROR, ID_A, ID_B, ClusterTest, environment

CLIENT = os.environ.get("PHALANX_LARGE_OBJECT", os.path.abspath("tests/process/large_object"))
FULL = os.environ.get("LARGE_OBJECT_FULL") == "1"
SIZE = 5 << 30 if FULL else 80 << 20
TIMEOUT_S = 600


class LargeObjectTest(ClusterTest):
    def client(self, node, verb, object_id, size=SIZE):
        """Return the program's standard error; empty if it succeeded."""
        command = [CLIENT, self.cluster.nodes[node].client_address, verb, str(size), object_id]
        done = subprocess.run(
            command, env=environment(), stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
        )
        self.assertEqual(done.returncode, ERROR if done.stderr else 0)
        return done.stderr

    def sha256(self, node):
        """Return the SHA-256 of the standard output of `phalanx get`."""
        get = self.cluster.begin("get", ID_A, "-o", "-", "-q", node=node, text=False)
        digest = hashlib.sha256()
        while block := get.stdout.read(1 << 20):
            digest.update(block)
        self.assertEqual(get.wait(TIMEOUT_S), 0)
        return digest.hexdigest()

    def test_another_node_fetches_it_whole_and_in_ranges(self):
        self.cluster.start_shards(1)
        self.cluster.start_nodes(2, capacity=str(SIZE + (16 << 20)))
        self.assertEqual(self.client("n0", "put", ID_A), "")
        self.assertEqual(self.client("n1", "check", ID_A), "")
        self.assertEqual(self.sha256("n0"), self.sha256("n1"))
        copies = self.cluster.ask("describe", ID_A)["copies"]
        self.assertEqual({copy["node"]: copy["bytes_present"] for copy in copies}, {"n0": SIZE, "n1": SIZE})
        # A second object does not fit.
        self.assertIn("RESOURCE_EXHAUSTED", self.client("n0", "put", ID_B, size=SIZE + (32 << 20)))
        # More memory than any machine has.
        self.assertIn("RESOURCE_EXHAUSTED", self.client("n0", "put", ID_B, size=1 << 45))


if __name__ == "__main__":
    unittest.main()
