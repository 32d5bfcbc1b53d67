"""The output of the tools for a running cluster."""

import contextlib
import json
import os
import pty
import re
import selectors
import signal
import subprocess
import termios
import time
import unittest
import unittest.mock
import urllib.error
import urllib.request

from tests.process.harness import (
    BINARY,
    DEADLINE_S,
    ERROR,
    ID_A,
    ID_B,
    NOT_FOUND,
    OK,
    TIMED_OUT,
    UNAVAILABLE,
    USAGE,
    ClusterTest,
    Daemon,
    environment,
    own_bytes,
    sha256,
)

MIB = 1 << 20
RECORD = 1024  # counted for an object in addition to its bytes


class ToolsTest(ClusterTest):
    def start(self, nodes, shards=1, arguments=(), **settings):
        self.cluster.start_shards(shards, arguments)
        self.cluster.start_nodes(nodes, arguments, **settings)

    def ask_http(self, address, path):
        with urllib.request.urlopen(f"http://{address}{path}", timeout=DEADLINE_S) as answer:
            return answer.read().decode()

    def test_status_waits_for_a_node_that_starts(self):
        asks = ["status", "--until-nodes=1", f"--address=unix:{self.cluster.path('n0.sock')}"]
        self.cluster.finish(self.cluster.begin(*asks, "--connect-timeout=300ms"), expect=UNAVAILABLE)
        waiting = self.cluster.begin(*asks, f"--connect-timeout={DEADLINE_S}s")
        self.cluster.start_shards(1)
        self.cluster.start_node("n0")
        self.assertIn("n0", self.cluster.finish(waiting))

    def test_objects_of_all_shards_are_listed_in_order(self):
        self.start(1, shards=3)
        ids = [f"{index:02x}" * 20 for index in range(1, 31)]
        path = self.cluster.make_file("file", 100)
        for object_id in ids:
            self.cluster.put("n0", path, object_id, "--wait")
        directory = f"--directory={self.cluster.directory}"
        lines = self.cluster.run("ls", "--json", "--sort=id", directory).splitlines()
        self.assertEqual([json.loads(line)["id"] for line in lines], ids)
        page = ["--sort=id", "--limit=7", f"--after={ids[4]}"]
        lines = self.cluster.run("ls", "--json", *page, directory).splitlines()
        self.assertEqual([json.loads(line)["id"] for line in lines], ids[5:12])
        table = self.cluster.run("ls", node="n0").splitlines()
        self.assertIn("COMPLETE", table[0])
        self.assertEqual(len(table), 31)

    def test_an_object_is_described_with_its_tree(self):
        self.start(2)
        path = self.cluster.make_file("file", 3 * MIB)
        self.cluster.put("n0", path, ID_A, "--metadata=shape 3x4", "--slices=2")
        self.cluster.get("n1", ID_A)
        described = self.cluster.follow(
            lambda look: [copy["bytes_received"] for copy in look["copies"]] == [0, 3 * MIB], "describe", ID_A
        )
        self.assertEqual(described["size_bytes"], 3 * MIB)
        self.assertEqual(described["slices"], 2)
        self.assertEqual(bytes.fromhex(described["metadata"]), b"shape 3x4")
        root, leaf = described["copies"]
        self.assertEqual((root["node"], root["sender"], root["primary"]), ("n0", None, True))
        self.assertEqual((leaf["node"], leaf["sender"]), ("n1", "n0"))
        drawing = self.cluster.run("describe", ID_A, node="n1")
        self.assertIn("└─ n1", drawing)
        self.assertIn("`- n1", self.cluster.run("describe", ID_A, "--ascii", node="n1"))

    def test_names_stand_for_ids(self):
        self.start(2)
        path = self.cluster.make_file("file", 1000)
        object_id = self.cluster.run("put", path, "--name=model", "-q", node="n0").strip()
        other = self.cluster.run("put", path, "--name=model", "--namespace=x", "-q", node="n0").strip()
        self.assertNotEqual(object_id, other)
        out = self.cluster.path("out")
        self.cluster.run("get", "--name=model", "-o", out, node="n1")
        self.assertEqual(sha256(out), sha256(path))
        self.assertIn(object_id, self.cluster.run("describe", "--name=model", node="n1"))
        self.cluster.run("rm", "--name=model", node="n1")
        self.cluster.run("get", "--name=model", "-o", out, "--timeout=10s", node="n1", expect=3)

    def put_named(self, *names):
        """Put objects of 1000, 2000, ... bytes under these names, and return their ids."""
        ids = []
        for index, name in enumerate(names):
            path = self.cluster.make_file("file", 1000 * (index + 1))
            put = self.cluster.run("put", path, f"--name={name}", "--wait", "-q", node="n0")
            ids.append(put.strip())
        return ids

    def listed(self, *arguments):
        lines = self.cluster.run("ls", "--json", *arguments, node="n0").splitlines()
        return [json.loads(line)["name"] for line in lines]

    def test_lists_are_sorted_and_leave_out_deleted_objects(self):
        self.start(1, shards=2)
        self.put_named("b", "a", "step/10", "step/9")
        self.assertEqual(self.listed(), ["step/9", "step/10", "a", "b"])
        self.assertEqual(self.listed("--reverse"), ["b", "a", "step/10", "step/9"])
        self.assertEqual(self.listed("--sort=size"), ["step/9", "step/10", "a", "b"])
        self.assertEqual(self.listed("--sort=size", "-r", "--limit=2"), ["b", "a"])
        self.assertEqual(self.listed("--sort=name"), ["a", "b", "step/9", "step/10"])
        self.assertEqual(self.listed("--name=step/*", "--sort=name"), ["step/9", "step/10"])
        self.assertEqual(self.listed("--name=step/?"), ["step/9"])
        self.assertEqual(self.listed("--name=*", "--namespace=other"), [])
        self.cluster.run("rm", "--name=a", node="n0")
        self.assertEqual(self.listed("--sort=name"), ["b", "step/9", "step/10"])
        self.assertEqual(self.listed("--sort=name", "--all"), ["a", "b", "step/9", "step/10"])
        self.assertIn("deleted", self.cluster.run("ls", "--all", node="n0"))
        table = self.cluster.run("ls", "--limit=1", node="n0").splitlines()
        self.assertEqual(table[0].split()[:4], ["ID", "NAME", "SIZE", "AGE"])
        self.assertEqual(len(table), 2)
        self.cluster.run("ls", f"--after={ID_A}", node="n0", expect=USAGE)

    def test_another_file_under_a_name_is_an_error(self):
        self.start(2)
        for size in (1000, 3 * MIB):
            first = self.cluster.make_file("first", size, seed=1)
            other = self.cluster.make_file("other", size, seed=2)
            name = f"--name=once/{size}"
            object_id = self.cluster.run("put", first, name, "-q", node="n0").strip()
            # The same bytes are accepted on every node, from a file or a pipe.
            self.assertEqual(self.cluster.run("put", first, name, "-q", node="n1").strip(), object_id)
            with open(first, "rb") as pipe:
                self.cluster.finish(self.cluster.begin("put", "-", name, "-q", node="n1", stdin=pipe))
            error = self.cluster.run("put", other, name, "-q", node="n1", expect=ERROR)
            self.assertIn("--exist-ok", error)
            self.assertIn(f'"once/{size}" ({object_id})', error)
            self.cluster.run("put", first, name, "--metadata=x", node="n0", expect=ERROR)
            self.cluster.run("put", other, name, "--exist-ok", "-q", node="n0")
            out = self.cluster.path("out")
            self.cluster.run("get", name, "-o", out, node="n0")
            self.assertEqual(sha256(out), sha256(first))

    def test_patterns_of_names_delete_what_they_match(self):
        self.start(1, shards=2)
        self.put_named("job/1", "job/2", "job/2/grad[0]", "jobs")
        waiting = self.cluster.begin("get", "--name=job/later", "-o", "/dev/null", node="n0")
        self.cluster.follow(lambda look: look["waiting"] == 1, "describe", "--name=job/later")
        dry = self.cluster.run("rm", "--name=job/?", "--dry-run", node="n0")
        self.assertEqual(sorted(line.split()[1] for line in dry.splitlines()), ["job/1", "job/2"])
        self.assertEqual(self.cluster.run("rm", "--name=job/*", node="n0"), "deleted 3 objects\n")
        self.assertEqual([name for name in self.listed() if name != "job/later"], ["jobs"])
        error = self.cluster.run("rm", "--name=job/*", node="n0", expect=3)
        self.assertIn('has a name like "job/*"', error)
        self.assertEqual(self.cluster.run("rm", "--name=job/*", "--force", node="n0"), "deleted 0 objects\n")
        self.cluster.discard(waiting)
        # An object that several arguments mean is deleted, and counted, once.
        self.put_named("once")
        dry = self.cluster.run("rm", "--name=once", "--name=once", "--name=on*", "--dry-run", node="n0")
        self.assertEqual(len(dry.splitlines()), 1)
        self.assertEqual(self.cluster.run("rm", "--name=once", "--name=o*", node="n0"), "deleted 1 object\n")
        # What is no pattern is the name itself.
        self.put_named("grad[0]")
        self.cluster.run("rm", "--name=grad[0]", node="n0")
        self.assertNotIn("grad[0]", self.listed())

    def test_the_first_digits_stand_for_an_id(self):
        self.start(1, shards=3)
        path = self.cluster.make_file("file", 1000)
        ids = ["abcd12" + "0" * 34, "abcd12" + "1" * 34, "f" * 40, "0000" + "1" * 36]
        for object_id in ids:
            self.cluster.put("n0", path, object_id, "--wait")
        for typed, object_id in (("abcd121", ids[1]), ("ABCD120", ids[0]), ("ffff", ids[2]), ("0000", ids[3])):
            described = json.loads(self.cluster.run("describe", typed, "--json", node="n0"))
            self.assertEqual(described["id"], object_id)
        self.cluster.run("get", "ffff", "-o", "/dev/null", "-q", node="n0")
        error = self.cluster.run("get", "abcd12", "-o", "/dev/null", node="n0", expect=USAGE)
        self.assertIn(ids[0], error)
        self.assertIn(ids[1], error)
        self.cluster.run("rm", "abc", node="n0", expect=USAGE)
        self.cluster.run("rm", "12345", node="n0", expect=3)
        self.cluster.run("put", path, "--id=abcd", node="n0", expect=USAGE)
        # With one of the two deleted, the other is meant; with both deleted, either could be.
        self.cluster.run("rm", "abcd120", node="n0")
        described = json.loads(self.cluster.run("describe", "abcd12", "--json", node="n0"))
        self.assertEqual(described["id"], ids[1])
        self.cluster.run("rm", "abcd12", node="n0")
        self.assertIn("deleted", self.cluster.run("describe", "abcd12", node="n0", expect=USAGE))

    def test_names_stay_with_objects_through_the_loss_of_the_primary_and_a_restart(self):
        self.start(2)
        path = self.cluster.make_file("file", 3 * MIB)
        object_id = self.cluster.run("put", path, "--name=job/größe", "-q", node="n0").strip()
        self.cluster.run("get", "--name=job/größe", "-o", "/dev/null", node="n1")
        self.assertIn(f'{object_id}  "job/größe"  3', self.cluster.run("describe", object_id, node="n1"))
        table = self.cluster.run("ls", node="n0").splitlines()
        self.assertEqual([line.split()[1] for line in table], ["NAME", "job/größe"])
        self.cluster.nodes["n0"].kill()
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        look = self.cluster.follow(lambda look: look["complete_copies"] == 1, "describe", object_id)
        self.assertEqual((look["name"], look["namespace"]), ("job/größe", "default"))
        self.assertEqual([copy["node"] for copy in look["copies"]], ["n1"])

    def test_a_time_to_live_runs_on_through_a_restart_of_the_directory(self):
        self.start(2)
        small = self.cluster.make_file("small", 1000)
        large = self.cluster.make_file("large", 3 * MIB, seed=2)
        self.cluster.run("put", small, "--name=long", "--ttl=1h", "--wait", "-q", node="n0")
        ttl_s = 8
        begun = time.monotonic()
        self.cluster.run("put", large, "--name=short", f"--ttl={ttl_s}s", "--wait", "-q", node="n0")
        adopted = time.monotonic()
        # A put of what exists does not renew the time.
        self.cluster.run("put", large, "--name=short", "--ttl=1h", "-q", node="n1")
        look = json.loads(self.cluster.run("describe", "--name=short", "--json", node="n1"))
        self.assertLessEqual(look["ttl_s"], ttl_s)
        self.assertIn(", expires in ", self.cluster.run("describe", "--name=short", node="n1"))
        table = self.cluster.run("ls", "--sort=name", node="n0").splitlines()
        self.assertIn("TTL", table[0].split())
        self.assertIn("59m", table[1])
        self.cluster.run("get", "--name=short", "-o", "/dev/null", node="n1")
        # The node that remains has a copy from n0, and knows from the shard what was left.
        self.cluster.nodes["n0"].kill()
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        seen = self.cluster.follow(lambda look: look["complete_copies"] == 1, "describe", "--name=short")
        self.assertLessEqual(seen["ttl_s"], ttl_s - (time.monotonic() - adopted) + 5)
        self.cluster.follow(lambda look: look["deleted"], "describe", "--name=short")
        ended = time.monotonic()
        self.assertGreaterEqual(ended - begun, ttl_s)
        error = self.cluster.run("get", "--name=short", "-o", "/dev/null", node="n1", expect=NOT_FOUND)
        self.assertIn("its time to live had passed", error)

    def test_a_time_to_live_is_positive(self):
        self.start(1)
        path = self.cluster.make_file("file", 10)
        for ttl in ("0", "0s"):
            error = self.cluster.run("put", path, f"--ttl={ttl}", node="n0", expect=USAGE)
            self.assertIn("time to live", error)
        object_id = self.cluster.run("put", path, "--ttl=inf", "-q", node="n0").strip()
        look = json.loads(self.cluster.run("describe", object_id, "--json", node="n0"))
        self.assertIsNone(look["ttl_s"])

    def test_an_object_that_is_waited_for_is_shown_by_its_name(self):
        self.start(1)
        waiting = self.cluster.begin("get", "--name=later", "--namespace=x", "-o", "/dev/null", node="n0")
        look = self.cluster.follow(lambda look: look["waiting"] == 1, "describe", "--name=later", "--namespace=x")
        self.assertEqual((look["name"], look["namespace"]), ("later", "x"))
        self.assertIn("x:later", self.cluster.run("ls", node="n0"))
        self.assertIn("x:later", self.cluster.run("top", "--once", node="n0"))
        path = self.cluster.make_file("file", 1000)
        self.cluster.run("put", path, "--name=later", "--namespace=x", "-q", node="n0")
        self.cluster.finish(waiting)

    def test_reductions_are_shown_with_the_names_of_their_objects(self):
        self.start(1)
        path = self.cluster.make_file("file", 4096)
        self.cluster.run("put", path, "--name=grad/0", "-q", node="n0")
        reduce = self.cluster.begin("reduce", "sum", "grad/0", "grad/1", "--names", node="n0")
        # Until the object exists, the directory knows its name from those that wait for it.
        waiting = self.cluster.begin("get", "--name=grad/1", "-o", "/dev/null", node="n0")
        self.cluster.follow(lambda look: look["waiting"] == 1, "describe", "--name=grad/1")
        look = self.cluster.follow(
            lambda look: look["reduction"] and look["reduction"]["ready"] == 1, "describe", "--name=sum"
        )
        self.assertEqual(look["name"], "sum")
        names = {name["name"] for name in look["reduction"]["names"].values()}
        self.assertEqual(names, {"sum", "grad/1"})
        self.assertIn('missing: "grad/1" (', self.cluster.run("describe", "--name=sum", node="n0"))
        [reduction] = json.loads(self.cluster.run("top", "--once", "--json", node="n0"))["reducing"]
        self.assertEqual(reduction["name"], "sum")
        self.assertIn(" sum ", self.cluster.run("top", "--once", node="n0"))
        self.cluster.run("put", path, "--name=grad/1", "-q", node="n0")
        self.cluster.finish(waiting)
        self.cluster.finish(reduce)
        self.assertIn('"sum"', self.cluster.run("describe", "--name=sum", node="n0"))

    def test_errors_name_what_was_asked_for(self):
        self.start(1)
        for command in (["get", "-o", "/dev/null", "--timeout=100ms"], ["rm"], ["broadcast", "-q"]):
            expect = TIMED_OUT if command[0] == "get" else 3
            get = self.cluster.begin(*command, "--name=absent", node="n0")
            self.assertIn('"absent" (', self.cluster.finish(get, expect))

    def test_a_name_in_place_of_an_id_is_pointed_out(self):
        self.start(1)
        put = ["put", self.cluster.make_file("file", 100)]
        for command in (["get"], ["describe"], ["rm"], ["broadcast"]):
            for name in ("job/7", "a", "f" * 41):
                error = self.cluster.run(*command, name, node="n0", expect=USAGE)
                self.assertIn(f'"{name}" is no id: ', error)
                self.assertIn("for a name use --name", error)
            self.assertIn("for a name use --name", self.cluster.run(*command, "cafe", node="n0", expect=3))
        self.assertIn("for a name use --name", self.cluster.run(*put, "--id=job/7", node="n0", expect=USAGE))
        error = self.cluster.run("reduce", "job/7", ID_A, node="n0", expect=USAGE)
        self.assertIn("for a name use --names", error)

    def test_a_named_put_fails_if_the_object_that_it_compares_with_is_lost(self):
        self.cluster.start_shards(1)
        self.cluster.start_node("n0", ["--max-egress=1MB/s"])
        self.cluster.start_node("n1")
        self.cluster.wait_for_nodes(2)
        path = self.cluster.make_file("file", 16 * MIB)
        object_id = self.cluster.run("put", path, "--name=once", "-q", node="n0").strip()
        put = self.cluster.begin("put", path, "--name=once", "-q", node="n1")
        # Fetched for the comparison.
        self.cluster.follow(lambda look: look["partial_copies"] == 1, "describe", object_id)
        self.cluster.nodes["n0"].kill()
        error = self.cluster.finish(put, expect=ERROR)
        self.assertIn("DATA_LOSS", error)
        self.assertIn(f'"once" ({object_id})', error)

    def test_bytes_pass_through_pipes(self):
        self.start(1)
        content = b"".join(b"line %d\n" % i for i in range(100000))
        at = f"--address={self.cluster.nodes['n0'].client_address}"
        settings = {"timeout": DEADLINE_S, "env": environment(), "check": True, "capture_output": True}
        subprocess.run([BINARY, "put", "-", f"--id={ID_A}", at], input=content, **settings)
        got = subprocess.run([BINARY, "get", ID_A, at], **settings)
        self.assertEqual(got.stdout, content)
        # A known size makes the put stream.
        size = f"--size={len(content)}"
        subprocess.run([BINARY, "put", "-", size, f"--id={ID_B}", at], input=content, **settings)
        got = subprocess.run([BINARY, "get", ID_B, "-o", "-", at], **settings)
        self.assertEqual(got.stdout, content)

    def assert_unknown(self, *ids):
        for object_id in ids:
            self.cluster.run("get", object_id, "-o", "/dev/null", "--timeout=100ms", node="n0", expect=TIMED_OUT)

    def put_from_pipe(self, text, *arguments, expect):
        put = self.cluster.begin("put", "-", "-q", *arguments, node="n0", stdin=subprocess.PIPE)
        put.stdin.write(text)
        put.stdin.close()
        put.stdin = None
        return self.cluster.finish(put, expect)

    def test_a_pipe_of_another_size_than_announced_is_no_object(self):
        self.start(1)
        error = self.put_from_pipe("x" * 1000, f"--id={ID_A}", "--size=2MiB", expect=USAGE)
        self.assertIn("ended early, after 1000 bytes, but --size is 2097152 bytes", error)
        error = self.put_from_pipe("x" * 3000, f"--id={ID_A}", "--size=2KiB", expect=USAGE)
        self.assertIn("has at least 2049 bytes, but --size is 2048 bytes", error)
        self.put_from_pipe("x", f"--id={ID_A}", "--size=0", expect=USAGE)
        self.assert_unknown(ID_A)
        self.put_from_pipe("x" * 3000, f"--id={ID_A}", "--size=3000", expect=OK)
        self.put_from_pipe("", f"--id={ID_B}", "--size=0", expect=OK)

    def test_an_input_without_an_end_is_refused_when_the_node_cannot_hold_it(self):
        self.start(1)
        with open("/dev/zero", "rb") as zeros:
            put = self.cluster.begin("put", "-", f"--id={ID_A}", node="n0", stdin=zeros)
            own = 0
            while put.poll() is None:
                with contextlib.suppress(OSError, AssertionError):
                    own = max(own, own_bytes(put.pid))
        error = self.cluster.finish(put, expect=ERROR)
        self.assertIn("RESOURCE_EXHAUSTED", error)
        self.assertIn(str(64 * MIB), error)
        self.assertGreater(own, 0)
        self.assertLess(own, 32 * MIB)
        self.assert_unknown(ID_A)
        self.cluster.follow(lambda look: look["nodes"][0]["used_bytes"] == 0, "status")
        self.assertEqual(self.cluster.run("ls", "--json", node="n0"), "")

    def put_file_through_pipe(self, path, object_id, *arguments, expect=OK):
        with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
            put = self.cluster.begin("put", "-", f"--id={object_id}", *arguments, node="n0", stdin=cat.stdout)
            cat.stdout.close()
            return self.cluster.finish(put, expect)

    def test_a_pipe_of_nearly_the_capacity_is_stored(self):
        self.start(1)
        path = self.cluster.make_file("file", 63 * MIB + 12345)
        self.put_file_through_pipe(path, ID_A)
        self.assertEqual(self.cluster.get("n0", ID_A), sha256(path))

    def test_a_pipe_waits_for_memory_until_its_deadline(self):
        self.start(1)
        path = self.cluster.make_file("file", 40 * MIB)
        self.cluster.put("n0", path, ID_A)
        begun = time.monotonic()
        error = self.put_file_through_pipe(path, ID_B, "--timeout=3500ms", expect=ERROR)
        self.assertIn("RESOURCE_EXHAUSTED", error)
        self.assertGreaterEqual(time.monotonic() - begun, 3.5)
        said = "phalanx put: the node has no memory yet, or is busy; --timeout limits the wait\n"
        self.assertEqual(error.count(said), 1)
        error = self.cluster.run("put", path, f"--id={ID_B}", "--timeout=3500ms", node="n0", expect=ERROR)
        self.assertEqual(error.count(said), 1)
        self.assertNotIn(said, self.cluster.put("n0", path, ID_B, "--timeout=3500ms", expect=ERROR))
        # What can never fit is refused without a wait.
        large = self.cluster.make_file("large", 65 * MIB)
        error = self.cluster.run("put", large, f"--id={ID_B}", node="n0", expect=ERROR)
        self.assertNotIn(said, error)
        self.cluster.run("rm", ID_A, node="n0")
        self.put_file_through_pipe(path, ID_B, "--timeout=300ms")
        self.assertEqual(self.cluster.get("n0", ID_B), sha256(path))

    def test_a_file_of_another_size_than_announced_is_no_object(self):
        self.start(1)
        path = self.cluster.make_file("file", 3000)
        error = self.cluster.put("n0", path, ID_A, "--size=10", expect=USAGE)
        self.assertIn(f"{path} has 3000 bytes, but --size is 10 bytes", error)
        self.assert_unknown(ID_A)
        self.cluster.put("n0", path, ID_A, "--size=3000")

    def test_a_get_that_fails_leaves_no_file(self):
        self.start(1)
        out = self.cluster.path("out")
        self.cluster.run("get", ID_A, "-o", out, "--timeout=100ms", node="n0", expect=4)
        self.assertEqual([name for name in os.listdir(self.cluster.folder) if name.startswith("out")], [])

    def test_status_shows_labels_memory_and_shards(self):
        self.start(2, shards=2)
        self.cluster.start_node("n2", ["--label=zone=b", "--label=rack=7"], capacity="32MiB")
        self.cluster.put("n2", self.cluster.make_file("file", 5 * MIB), ID_A)
        self.cluster.wait_for_nodes(3)
        status = self.cluster.follow(
            lambda look: look["nodes"][2]["used_bytes"] == 5 * MIB + RECORD, "status"
        )
        self.assertEqual([shard["index"] for shard in status["shards"]], [0, 1])
        node = status["nodes"][2]
        self.assertEqual(node["labels"], {"rack": "7", "zone": "b"})
        self.assertEqual(node["capacity_bytes"], 32 * MIB)
        self.assertEqual(node["connected_shards"], 2)
        self.assertEqual(node["process_id"], self.cluster.nodes["n2"].pid)
        self.assertIn("rack=7,zone=b", self.cluster.run("status", node="n0"))

    def test_top_runs_until_its_reader_closes(self):
        self.start(1)
        once = self.cluster.run("top", "--once", node="n0")
        self.assertIn("no transfers", once)
        watcher = Daemon(
            ["top", "--interval=10ms", f"--directory={self.cluster.directory}"], self.cluster.path("top.log")
        )
        self.addCleanup(watcher.close)
        looks = 0
        while looks < 3:
            looks += watcher.read_line().startswith("NODE")
        watcher.process.stdout.close()
        # It sees the end before it writes, or while it writes.
        self.assertIn(watcher.wait(), (0, -signal.SIGPIPE))

    def test_a_closed_pipe_ends_a_command_as_it_ends_cat(self):
        self.start(1)
        self.cluster.put("n0", self.cluster.make_file("file", 8 * MIB), ID_A)
        at = f"--address={self.cluster.nodes['n0'].client_address}"
        for arguments in (["get", ID_A], ["status", f"--directory={self.cluster.directory}"]):
            reader, writer = os.pipe()
            os.close(reader)
            command = subprocess.run(
                [BINARY, *arguments, *([at] if arguments[0] == "get" else [])],
                stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=DEADLINE_S, check=False,
            )
            os.close(writer)
            self.assertEqual((command.returncode, command.stderr), (-signal.SIGPIPE, b""), arguments)

    def test_output_that_cannot_be_written_is_an_error(self):
        self.start(1)
        with open("/dev/full", "wb") as full:
            command = self.cluster.begin("status", f"--directory={self.cluster.directory}", stdout=full)
            self.assertEqual(command.wait(DEADLINE_S), ERROR)
            self.assertIn("cannot write to standard output", command.stderr.read())

    def open_terminal(self):
        """Return both ends of a terminal of 30 lines by 100 columns, ours first."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (30, 100))
        self.addCleanup(os.close, ours)
        return ours, theirs

    def read_terminal(self, ours, text):
        """Return the terminal's output up to `text`."""
        seen = b""
        end = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(ours, selectors.EVENT_READ)
            while text.encode() not in seen:
                in_time = selector.select(max(0, end - time.monotonic()))
                self.assertTrue(in_time, f"{text} does not come: {seen}")
                # Byte by byte, so that what follows is left for the next call.
                seen += os.read(ours, 1)
        return seen.decode()

    def test_top_leaves_the_terminal_as_it_was_after_q(self):
        self.start(1)
        ours, theirs = self.open_terminal()
        before = termios.tcgetattr(theirs)
        top = subprocess.Popen(
            [BINARY, "top", "--interval=20ms", f"--directory={self.cluster.directory}"],
            stdin=theirs,
            stdout=theirs,
            env=environment(),
        )
        self.addCleanup(top.kill)
        self.read_terminal(ours, "n0")
        # The tool draws in the same place again.
        self.read_terminal(ours, "\x1b[8A")
        os.write(ours, b"q")
        self.assertEqual(top.wait(DEADLINE_S), 0)
        self.assertEqual(termios.tcgetattr(theirs), before)
        os.close(theirs)

    def test_a_bar_shows_on_a_terminal_how_far_a_put_is(self):
        self.start(1)
        ours, theirs = self.open_terminal()
        put = self.cluster.begin("put", "-", "--size=4MiB", node="n0", stdin=subprocess.PIPE, stderr=theirs)
        os.write(put.stdin.fileno(), bytes(2 * MIB))
        self.assertIn("put -", self.read_terminal(ours, "of 4.00 MiB"))
        os.write(put.stdin.fileno(), bytes(2 * MIB))
        put.stdin.close()
        last = self.read_terminal(ours, "4.00 MiB in ")
        # The bar is cleared before the summary, whose rate is the size over its time.
        self.assertTrue(last.endswith("\r\x1b[K4.00 MiB in "), repr(last))
        time_text, rate_text = self.read_terminal(ours, "\n").strip().split(", ")
        seconds = float(time_text.split()[0]) * {"ms": 1e-3, "s": 1}[time_text.split()[1]]
        rate = float(rate_text.split()[0]) * {"kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}[rate_text.split()[1]]
        self.assertAlmostEqual(rate * seconds / (4 * MIB), 1, delta=0.02)
        self.assertEqual(put.wait(DEADLINE_S), 0)
        os.close(theirs)

    def test_a_capacity_that_holds_next_to_nothing_is_refused_with_the_minimum(self):
        for capacity in ("0", "1", "12", "1023KiB"):
            for daemon in (["node", f"--socket={self.cluster.path('x.sock')}"], ["up"]):
                error = self.cluster.run(*daemon, f"--capacity={capacity}", expect=USAGE)
                self.assertIn("minimum of 1MiB", error)
        self.start(1, capacity="1MiB")
        path = self.cluster.make_file("file", MIB - RECORD)
        self.cluster.put("n0", path, ID_A)
        self.assertEqual(self.cluster.get("n0", ID_A), sha256(path))

    def test_what_cannot_be_a_secret_or_a_name_is_refused_at_once(self):
        pipe = self.cluster.path("pipe")
        os.mkfifo(pipe)
        for path, kind in ((pipe, "a pipe"), (self.cluster.folder, "a folder"), ("/dev/null", "a device")):
            for daemon in ("node", "directory"):
                error = self.cluster.run(daemon, f"--secret-file={path}", "--listen=127.0.0.1:0", expect=USAGE)
                self.assertIn(f"{path} is {kind}", error)
        error = self.cluster.run("node", b"--name=n\xff", f"--socket={self.cluster.path('x.sock')}", expect=USAGE)
        self.assertIn('--name: "n\\xff" is not valid UTF-8', error)

    def test_without_a_node_the_message_names_the_command_that_starts_one_there(self):
        self.cluster.start_shards(1)
        path = self.cluster.make_file("file", 10)
        with unittest.mock.patch.dict(os.environ, XDG_RUNTIME_DIR=self.cluster.folder):
            error = self.cluster.run("put", path, expect=UNAVAILABLE)
            self.assertIn(self.cluster.path("phalanx/node.sock"), error)
            shard, node = re.search("start one there with `phalanx (.*) & phalanx (.*)`,", error).groups()
            self.assertEqual(shard, "directory")
            daemon = Daemon([*node.split(), f"--directory={self.cluster.directory}"], self.cluster.path("n.log"))
            self.addCleanup(daemon.close)
            self.assertIn(self.cluster.path("phalanx/node.sock"), daemon.read_line())
            self.cluster.run("put", path)

    def test_metrics_are_served_to_prometheus(self):
        self.start(1, arguments=["--metrics-listen=127.0.0.1:0"])
        self.cluster.put("n0", self.cluster.make_file("file", 5 * MIB), ID_A, "--wait")
        node = self.ask_http(self.cluster.nodes["n0"].hello["metrics"], "/metrics")
        self.assertIn(f"\nphalanx_node_used_bytes {5 * MIB + RECORD}\n", node)
        self.assertIn('\nphalanx_node_shard_connected{shard="0"} 1\n', node)
        shard = self.ask_http(self.cluster.shards[0].hello["metrics"], "/metrics")
        self.assertIn("\nphalanx_directory_objects 1\n", shard)
        self.assertIn("\nphalanx_directory_nodes_connected 1\n", shard)
        self.assertIn('\nphalanx_directory_events_total{event="adopted"} 1\n', shard)
        with self.assertRaises(urllib.error.HTTPError):
            self.ask_http(self.cluster.nodes["n0"].hello["metrics"], "/nothing")

    def test_settings_come_from_flags_environment_and_file_in_that_order(self):
        config = self.cluster.path("phalanx.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write('namespace = "file"\n[put]\nconnect-timeout = "3s"\n')
        self.start(1)
        path = self.cluster.make_file("file", 10)

        def put(*arguments, **variables):
            at = f"--address={self.cluster.nodes['n0'].client_address}"
            put = subprocess.run(
                [BINARY, "put", path, "--name=x", at, *arguments],
                env={**environment(), **variables},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=True,
            )
            return put.stdout.strip()

        by_namespace = {space: put(f"--namespace={space}") for space in ("file", "variable", "flag")}
        variable = {"PHALANX_NAMESPACE": "variable"}
        self.assertEqual(put(f"--config={config}"), by_namespace["file"])
        self.assertEqual(put(PHALANX_CONFIG=config), by_namespace["file"])
        self.assertEqual(put(f"--config={config}", **variable), by_namespace["variable"])
        self.assertEqual(put(f"--config={config}", "--namespace=flag", **variable), by_namespace["flag"])


if __name__ == "__main__":
    unittest.main()
