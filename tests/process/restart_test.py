"""Directory and nodes die, stop and restart while Gets wait and transfers run."""

import signal
import unittest

from tests.process.harness import ID_A, ID_B, OK, UNAVAILABLE, ClusterTest, sha256

MIB = 1 << 20


class RestartTest(ClusterTest):
    def start(self, nodes, shards=1, arguments=()):
        self.cluster.start_shards(shards)
        self.cluster.start_nodes(nodes, arguments)

    def test_a_get_that_waits_survives_the_restart_of_the_directory(self):
        self.start(2)
        get = self.cluster.begin_get("n1", ID_A)
        self.cluster.follow(lambda look: look["waiting"] == 1, "describe", ID_A)
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.cluster.wait_for_nodes(2)
        path = self.cluster.make_file("file", 2 * MIB)
        self.cluster.put("n0", path, ID_A)
        self.assertEqual(self.cluster.finish_get(get), sha256(path))

    def test_objects_are_found_again_after_the_restart_of_the_directory(self):
        self.start(2)
        paths = {}
        for index, size in enumerate((10, 70000, 3 * MIB)):
            object_id = f"{index + 1:02x}" * 20
            paths[object_id] = self.cluster.make_file(f"file{index}", size, seed=index)
            self.cluster.put("n0", paths[object_id], object_id)
        self.cluster.run("rm", "01" * 20, node="n1")
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.cluster.wait_for_nodes(2)
        for object_id, path in list(paths.items())[1:]:
            self.assertEqual(self.cluster.get("n1", object_id), sha256(path))
        # Deleted objects stay deleted.
        self.cluster.run("get", "01" * 20, "-o", "/dev/null", "--timeout=5s", node="n1", expect=3)

    def test_a_transfer_continues_while_the_directory_is_down(self):
        self.start(2, arguments=["--max-egress=8MB/s"])
        path = self.cluster.make_file("file", 8 * MIB)
        self.cluster.put("n0", path, ID_A)
        get = self.cluster.begin_get("n1", ID_A)
        self.cluster.follow(
            lambda look: any(copy["pulling"] and copy["bytes_present"] > MIB for copy in look["copies"]),
            "describe",
            ID_A,
        )
        self.cluster.shards[0].kill()
        self.assertEqual(self.cluster.finish_get(get), sha256(path))
        self.cluster.restart_shard(0)
        self.cluster.wait_for_nodes(2)
        self.cluster.await_copies(ID_A, 2)

    def test_calls_wait_for_a_stopped_directory(self):
        self.start(2)
        with self.stopped(self.cluster.shards[0]):
            self.cluster.run(
                "status", f"--directory={self.cluster.directory}", "--directory-timeout=300ms", expect=4
            )
            path = self.cluster.make_file("file", 2 * MIB)
            self.cluster.put("n0", path, ID_A)
            get = self.cluster.begin_get("n1", ID_A)
        self.assertEqual(self.cluster.finish_get(get), sha256(path))

    def test_a_stopped_node_rejoins_with_its_copies(self):
        self.start(3)
        path = self.cluster.make_file("file", 2 * MIB)
        self.cluster.put("n0", path, ID_A)
        with self.stopped(self.cluster.nodes["n0"]):
            # Stopped for longer than the lease, so the node is fenced.
            self.cluster.follow(lambda look: look["connected_nodes"] == 2, "status")
            get = self.cluster.begin_get("n1", ID_A)
        self.assertEqual(self.cluster.finish_get(get), sha256(path))
        self.cluster.wait_for_nodes(3)

    def test_a_restarted_node_replaces_its_earlier_life(self):
        self.start(2)
        path = self.cluster.make_file("file", 2 * MIB)
        self.cluster.put("n0", path, ID_A)
        self.assertEqual(self.cluster.get("n1", ID_A), sha256(path))
        self.cluster.nodes["n1"].kill()
        self.cluster.start_node("n1")
        # The node rejoins by itself.
        self.assertEqual(self.cluster.get("n1", ID_A), sha256(path))
        status = self.cluster.wait_for_nodes(2)
        self.assertEqual([node["name"] for node in status["nodes"]], ["n0", "n1"])

    def test_a_killed_shard_does_not_hold_up_the_objects_of_others(self):
        self.start(2, shards=3)
        paths = {}
        for index in range(12):
            object_id = f"{index:02x}" * 19 + "01"
            paths[object_id] = self.cluster.make_file(f"file{index}", 100000, seed=index)
            self.cluster.put("n0", paths[object_id], object_id, "--wait")
        self.cluster.shards[1].kill()
        gets = {object_id: self.cluster.begin_get("n1", object_id) for object_id in paths}
        reachable = [object_id for object_id in paths if self.is_described(object_id)]
        self.assertTrue(0 < len(reachable) < len(paths), reachable)
        for object_id in reachable:
            self.assertEqual(self.cluster.finish_get(gets.pop(object_id)), sha256(paths[object_id]))
        self.cluster.restart_shard(1)
        for object_id, get in gets.items():
            self.assertEqual(self.cluster.finish_get(get), sha256(paths[object_id]))

    def is_described(self, object_id):
        """Return whether the object's shard answers."""
        describe = self.cluster.begin("describe", object_id, f"--directory={self.cluster.directory}")
        describe.communicate()
        self.assertIn(describe.returncode, (OK, UNAVAILABLE))
        return describe.returncode == OK

    def test_a_cluster_restarts_empty_after_all_processes_died(self):
        self.start(2)
        path = self.cluster.make_file("file", 2 * MIB)
        self.cluster.put("n0", path, ID_A)
        for daemon in (self.cluster.shards[0], *self.cluster.nodes.values()):
            daemon.signal(signal.SIGKILL)
        for daemon in (self.cluster.shards[0], *self.cluster.nodes.values()):
            daemon.wait()
        self.cluster.restart_shard(0)
        # The sockets of the killed nodes are still in the folder.
        self.cluster.start_nodes(2)
        self.cluster.run("get", ID_A, "-o", "/dev/null", "--timeout=100ms", node="n0", expect=4)
        self.cluster.put("n0", path, ID_B)
        self.assertEqual(self.cluster.get("n1", ID_B), sha256(path))


if __name__ == "__main__":
    unittest.main()
