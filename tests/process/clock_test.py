"""Wall clocks that jump: running processes do not notice. Each process has a wall clock of its own,
which the test sets (jumping_clock.cc); the machine's clock is not changed."""

import os
import struct
import time
import unittest

from tests.process.harness import TIMED_OUT, ClusterTest, sha256

LIBRARY = os.path.abspath("tests/process/libjumping_clock.so")
HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S
# Too long to expire within a test, and shorter than every jump.
LEASE_S = 30
JUMPS = (LEASE_S + 1, -HOUR_S, 10 * YEAR_S, -10 * YEAR_S)


class ClockTest(ClusterTest):
    def setUp(self):
        super().setUp()
        before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "JUMPING_CLOCK")}
        self.addCleanup(self.restore, before)
        os.environ["LD_PRELOAD"] = LIBRARY

    def restore(self, before):
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def jump(self, name, seconds):
        with open(self.cluster.path(name + ".clock"), "r+b") as file:
            file.write(struct.pack("=q", seconds))

    def clock_for(self, name):
        """Processes that start from now on have this clock."""
        os.environ["JUMPING_CLOCK"] = path = self.cluster.path(name + ".clock")
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(bytes(8))

    def start(self):
        self.clock_for("shard")
        self.cluster.start_shards(1, [f"--lease={LEASE_S}s"])
        for name in ("n0", "n1", "n2"):
            self.clock_for(name)
            self.cluster.start_node(name)
        self.clock_for("tools")
        self.cluster.wait_for_nodes(3)

    def counters(self):
        return self.cluster.ask("status")["shards"][0]["counters"]

    def put_and_get(self, index):
        object_id = f"{index + 1:040x}"
        path = self.cluster.make_file("file", (10, 70000, 3 << 20)[index % 3], seed=index)
        # One Get waits during the jump, one starts after it.
        waiting = self.cluster.begin_get("n1", object_id)
        yield
        self.cluster.put("n0", path, object_id, "--wait")
        self.assertEqual(self.cluster.finish_get(waiting), sha256(path))
        self.assertEqual(self.cluster.get("n2", object_id), sha256(path))
        self.cluster.run("rm", object_id, node="n2")
        yield

    def test_the_clocks_of_processes_jump(self):
        self.start()
        self.jump("n0", 10 * YEAR_S)
        year = time.gmtime(time.time() + 10 * YEAR_S).tm_year
        self.cluster.shards[0].kill()
        self.assertIn("waiting for the directory", self.cluster.nodes["n0"].wait_for_log(f"{year}-"))
        self.cluster.restart_shard(0, [f"--lease={LEASE_S}s"])
        self.cluster.wait_for_nodes(3)

    def test_leases_transfers_and_deadlines_are_unaffected(self):
        self.start()
        index = 0
        for seconds in JUMPS:
            for names in (("shard",), ("n0", "n1", "tools"), ("shard", "n0", "n1", "n2", "tools")):
                index += 1
                steps = self.put_and_get(index)
                next(steps)
                for name in names:
                    self.jump(name, seconds)
                next(steps)
                for name in names:
                    self.jump(name, 0)
        counters = self.counters()
        self.assertEqual(counters["sessions_opened"], 3, counters)
        self.assertEqual(counters["sessions_fenced"], 0, counters)
        self.assertEqual(counters["sessions_resumed"], 0, counters)

    def test_a_call_ends_at_its_deadline_despite_jumps(self):
        self.start()
        for index, seconds in enumerate((HOUR_S, -HOUR_S)):
            begun = time.monotonic()
            object_id = f"{index + 1:040x}"
            get = self.cluster.begin("get", object_id, "-o", self.cluster.path("out"), "--timeout=3s", node="n0")
            self.cluster.follow(lambda look: look["waiting"] == 1, "describe", object_id)
            for name in ("tools", "n0", "shard"):
                self.jump(name, seconds)
            self.cluster.finish(get, expect=TIMED_OUT)
            self.assertGreaterEqual(time.monotonic() - begun, 3)
            for name in ("tools", "n0", "shard"):
                self.jump(name, 0)

    def test_a_node_that_restarts_in_the_past_is_accepted_when_its_earlier_life_has_ended(self):
        self.clock_for("shard")
        self.cluster.start_shards(1, ["--lease=1s"])
        self.clock_for("n1")
        self.cluster.start_node("n1")
        self.clock_for("n0")
        self.cluster.start_node("n0")
        self.clock_for("tools")
        self.cluster.wait_for_nodes(2)
        for index, seconds in enumerate((-HOUR_S, -10 * YEAR_S, HOUR_S, 0)):
            path = self.cluster.make_file("file", 100000, seed=index)
            self.cluster.put("n1", path, f"{index + 1:040x}", "--wait")
            self.cluster.nodes["n0"].kill()
            self.jump("n0", seconds)
            self.clock_for("n0")
            self.cluster.start_node("n0")
            self.clock_for("tools")
            self.assertEqual(self.cluster.get("n0", f"{index + 1:040x}"), sha256(path))
            # Other nodes find its puts.
            self.cluster.put("n0", path, f"{index + 100:040x}", "--wait")
            self.assertEqual(self.cluster.get("n1", f"{index + 100:040x}"), sha256(path))


if __name__ == "__main__":
    unittest.main()
