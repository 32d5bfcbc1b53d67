"""The memory of nodes, directory and clients under many small calls of a group, with an object for each call in a scope
that is freed every hundred calls.

The ordinary run makes 10,000 calls, group_rounds_full_test 100,000; both print what each process has.
"""

import os
import selectors
import subprocess
import unittest

from tests.process.harness import DEADLINE_S, ClusterTest, environment, own_bytes, tied

MEMBER = os.path.abspath("tests/process/group_rounds")
CALLS = int(os.environ.get("GROUP_ROUNDS_CALLS", "10000"))
NODES = 2
MEMBERS = 4
ROUNDS = 10
# In the first rounds buffers and tables grow to their sizes.
WARM_UP = 4
SLACK_BYTES = 256 << 10


class GroupRoundsTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards()
        self.cluster.start_nodes(NODES)
        self.members = [self.begin(rank) for rank in range(MEMBERS)]

    def begin(self, rank):
        address = self.cluster.nodes[f"n{rank % NODES}"].client_address
        member = subprocess.Popen(
            tied(MEMBER, address, str(rank), str(MEMBERS)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            bufsize=1, env=environment(),
        )
        self.addCleanup(self.cluster.discard, member)
        return member

    def make_calls(self, calls):
        for member in self.members:
            member.stdin.write(f"{calls}\n")
        for rank, member in enumerate(self.members):
            with selectors.DefaultSelector() as selector:
                selector.register(member.stdout, selectors.EVENT_READ)
                # A thousand calls take less than a second where nothing else runs.
                self.assertTrue(selector.select(DEADLINE_S * max(1, calls / 1000)), f"worker{rank} has not done {calls} calls")
            self.assertEqual(member.stdout.readline(), "done\n", f"worker{rank}")

    def memory(self):
        processes = {"directory": self.cluster.shards[0].pid}
        processes.update({name: node.pid for name, node in self.cluster.nodes.items()})
        processes.update({f"worker{rank}": member.pid for rank, member in enumerate(self.members)})
        return {name: own_bytes(pid) for name, pid in processes.items()}

    def test_memory_does_not_grow_with_calls(self):
        seen = []
        for _ in range(ROUNDS):
            self.make_calls(CALLS // ROUNDS)
            seen.append(self.memory())
        print(f"KiB after {CALLS // ROUNDS}, ..., {CALLS} calls")
        for name in seen[0]:
            print(f"{name:9} " + " ".join(f"{each[name] >> 10:6}" for each in seen))
        for name, at_the_end in seen[-1].items():
            self.assertLessEqual(at_the_end, max(each[name] for each in seen[:WARM_UP]) + SLACK_BYTES, name)
        status = self.cluster.ask("status")
        (shard,) = status["shards"]
        self.assertEqual(shard["tombstones"], 0)
        # Those of the last two scopes.
        self.assertLessEqual(shard["objects"], 200)


if __name__ == "__main__":
    unittest.main()
