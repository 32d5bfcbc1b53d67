"""Nodes that reach the directory over gRPC, through a proxy that accepts only HTTP/2."""

import unittest

from tests.process.harness import ID_A, ID_B, ClusterTest, sha256
from tests.process.proxy import Proxy

MIB = 1 << 20
HTTP2 = b"PRI * HTTP/2.0"


class GrpcSessionsTest(ClusterTest):
    def start_behind_proxies(self, nodes, shards, arguments=("--directory-grpc",)):
        """Return the proxies, one for each shard."""
        gates = [Proxy(shard.address, opening=HTTP2) for shard in self.cluster.start_shards(shards)]
        for gate in gates:
            self.addCleanup(gate.close)
        for index in range(nodes):
            self.cluster.start_node(f"n{index}", arguments, directory=",".join(gate.address for gate in gates))
        return gates

    def test_a_broadcast_works_over_it(self):
        gates = self.start_behind_proxies(4, shards=1)
        self.cluster.wait_for_nodes(4)
        large, small = self.cluster.make_file("large", 3 * MIB), self.cluster.make_file("small", 1000, seed=2)
        gets = [self.cluster.begin_get(f"n{i}", ID_A) for i in (1, 2, 3)]
        self.cluster.follow(lambda look: look["waiting"] == 3, "describe", ID_A)
        self.cluster.put("n0", large, ID_A, "--wait")
        for get in gets:
            self.assertEqual(self.cluster.finish_get(get), sha256(large))
        self.cluster.put("n0", small, ID_B, "--wait")
        for i in (1, 2, 3):
            self.assertEqual(self.cluster.get(f"n{i}", ID_B), sha256(small))
        self.cluster.run("rm", ID_A, node="n3")
        self.cluster.run("get", ID_A, "-o", "/dev/null", "--timeout=5s", node="n1", expect=3)
        self.assertEqual(gates[0].refused, 0)

    def test_a_killed_shard_restarts_and_learns_everything(self):
        self.start_behind_proxies(2, shards=2)
        self.cluster.wait_for_nodes(2)
        paths = {}
        for index in range(6):
            object_id = f"{index:02x}" * 19 + "01"
            paths[object_id] = self.cluster.make_file(f"file{index}", 100000, seed=index)
            self.cluster.put("n0", paths[object_id], object_id, "--wait")
        self.cluster.shards[1].kill()
        gets = {object_id: self.cluster.begin_get("n1", object_id) for object_id in paths}
        self.cluster.restart_shard(1)
        for object_id, get in gets.items():
            self.assertEqual(self.cluster.finish_get(get), sha256(paths[object_id]))
        self.cluster.wait_for_nodes(2)

    def test_the_proxy_refuses_sessions_over_plain_tcp(self):
        gate = self.start_behind_proxies(1, shards=1, arguments=())[0]
        path = self.cluster.make_file("file", 1000)
        self.cluster.put("n0", path, ID_A, "--wait", "--timeout=1s", expect=4)
        self.assertGreater(gate.refused, 0)
        self.assertEqual(self.cluster.ask("status")["connected_nodes"], 0)


if __name__ == "__main__":
    unittest.main()
