"""Copies on several hosts, and scopes, between real daemons: the command, kills, and a restart of the directory."""

import json
import unittest

from tests.process.harness import ID_A, ID_B, NOT_FOUND, USAGE, ClusterTest, sha256

MIB = 1 << 20


class CopiesTest(ClusterTest):
    def start(self, hosts, shards=1):
        self.cluster.start_shards(shards)
        self.nodes = self.cluster.start_hosts(hosts)

    def put(self, size, *arguments, object_id=ID_A, node="n0", **settings):
        path = self.cluster.make_file(f"{object_id}.{size}", size)
        self.cluster.put(node, path, object_id, *arguments, **settings)
        return path

    def replicate(self, copies, object_id=ID_A, node="n0"):
        """Return the number of hosts that have a copy."""
        answer = self.cluster.run("replicate", object_id, f"--copies={copies}", "--json", node=node)
        return json.loads(answer)["hosts"]

    @staticmethod
    def primaries(look):
        return sorted(copy["node"] for copy in look["copies"] if copy["primary"] and copy["complete"])

    def described(self, object_id=ID_A):
        return self.cluster.ask("describe", object_id)

    def await_primaries(self, condition, object_id=ID_A):
        look = self.cluster.follow(lambda look: condition(self.primaries(look)), "describe", object_id)
        return self.primaries(look)

    def test_a_put_waits_for_copies_on_other_hosts(self):
        self.start("aabc")
        path = self.put(3 * MIB, "--copies=2")
        look = self.described()
        self.assertEqual((look["copies_wanted"], look["copies_there"]), (2, 2))
        primaries = self.primaries(look)
        self.assertIn(primaries, (["n0", "n2"], ["n0", "n3"]), "never n1, which is on the first host")
        self.nodes[0].kill()
        with self.stopped(self.cluster.shards[0]):
            self.assertEqual(self.cluster.get(primaries[1], ID_A), sha256(path))

    def test_fewer_hosts_than_copies_and_more_when_nodes_join(self):
        self.start("ab")
        self.put(100)
        self.assertEqual(self.replicate(3), 2)
        listed = self.cluster.run("ls", node="n0")
        self.assertIn("2/3", listed)
        self.cluster.start_node("n2", ["--label=host=c"])
        self.assertEqual(self.await_primaries(lambda nodes: len(nodes) == 3), ["n0", "n1", "n2"])
        self.assertEqual(self.replicate(1), 1)
        self.assertEqual(self.await_primaries(lambda nodes: len(nodes) == 1), ["n0"])

    def test_copies_are_made_again_when_their_nodes_die_and_after_a_restart_of_the_directory(self):
        self.start("abcd")
        path = self.put(2 * MIB, "--copies=2")
        for victim in range(2):
            self.nodes[victim].kill()
            left = {f"n{i}" for i in range(victim + 1, 4)}
            self.await_primaries(lambda nodes, left=left: len(nodes) == 2 and set(nodes) <= left)
            self.cluster.shards[0].kill()
            self.cluster.restart_shard(0)
            self.cluster.follow(
                lambda look: (look["copies_wanted"], look["copies_there"]) == (2, 2), "describe", ID_A
            )
        self.assertEqual(self.cluster.get("n3", ID_A), sha256(path))

    def test_bad_numbers_are_errors_of_the_command_line(self):
        self.start("a")
        self.put(100)
        self.cluster.run("replicate", ID_A, "--copies=0", node="n0", expect=USAGE)
        self.cluster.run("replicate", ID_A, "--copies=65", node="n0", expect=USAGE)
        self.cluster.run("replicate", ID_B, "--copies=2", node="n0", expect=NOT_FOUND)

    def test_the_end_of_a_scope_frees_its_objects_on_all_shards_and_nodes(self):
        self.start("ab", shards=3)
        ids = [f"{i:02x}" * 20 for i in range(1, 13)]
        for i, object_id in enumerate(ids):
            number = f"--scope-number={i % 3}"
            self.put(MIB if i % 2 else 100, "--scope=job", number, object_id=object_id, node=f"n{i % 2}")
            self.cluster.get("n1", object_id)
        self.assertEqual(self.described(ids[1])["scope"], {"name": "job", "number": 1})
        self.cluster.run("end-scope", "job", "--number=1", node="n0")
        left = [line for line in self.cluster.run("ls", "--all", "--json", node="n0").splitlines() if line]
        listed = sorted(json.loads(line)["id"] for line in left)
        self.assertEqual(listed, sorted(ids[2::3]), "and no tombstones")
        late = self.cluster.make_file("late", 100)
        for node in ("n0", "n1"):
            refused = self.cluster.put(node, late, ids[0], "--scope=job", "--scope-number=1", expect=NOT_FOUND)
            self.assertIn('scope "job" 1 has ended', refused)
        self.cluster.put("n0", late, ids[0], "--scope=job", "--scope-number=2")
        self.cluster.run("end-scope", "job", "--number=2", node="n1")
        self.assertEqual(self.cluster.run("ls", "--all", "--json", node="n0").strip(), "")

    def test_a_scope_stays_ended_when_the_directory_restarts(self):
        self.start("ab")
        self.put(100, "--scope=job")
        self.cluster.run("end-scope", "job", node="n0")
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        late = self.cluster.make_file("late", 100)
        node = self.cluster.start_node("n2", ["--label=host=c"])
        self.assertIsNotNone(node)
        self.cluster.wait_for_nodes(3)
        refused = self.cluster.put("n2", late, ID_B, "--scope=job", "--wait", expect=NOT_FOUND)
        self.assertIn('scope "job" 0 has ended', refused)


if __name__ == "__main__":
    unittest.main()
