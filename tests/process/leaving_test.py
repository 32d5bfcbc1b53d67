"""Daemons that leave: they move sole copies, exit at once at a second signal, and end with their parent."""

import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import unittest
import unittest.mock

from tests.process.harness import (
    BINARY,
    DEADLINE_S,
    HOLDER,
    ID_A,
    ID_B,
    NOT_FOUND,
    OK,
    UNAVAILABLE,
    ClusterTest,
    Daemon,
    environment,
    sha256,
    tied,
    wait_for_end,
)

MIB = 1 << 20


class DrainTest(ClusterTest):
    def start(self, nodes, arguments=()):
        self.cluster.start_shards(1)
        self.cluster.start_nodes(nodes, arguments)

    def test_a_node_that_leaves_moves_its_sole_copies(self):
        self.start(2)
        paths = {}
        for index, size in enumerate((10, 70000, 3 * MIB)):
            object_id = f"{index + 1:02x}" * 20
            paths[object_id] = self.cluster.make_file(f"file{index}", size, seed=index)
            self.cluster.put("n0", paths[object_id], object_id, "--wait")
        self.cluster.nodes["n0"].signal(signal.SIGTERM)
        self.assert_dies(self.cluster.nodes["n0"], 0)
        for object_id, path in paths.items():
            self.assertEqual(self.cluster.get("n1", object_id), sha256(path))

    def drain(self, *arguments, expect=OK):
        return self.cluster.run("drain", *arguments, f"--directory={self.cluster.directory}", expect=expect)

    def test_a_drained_node_goes_on_and_what_it_alone_has_outlives_it(self):
        self.start(2)
        early, late = (self.cluster.make_file(name, 3 * MIB, seed=len(name)) for name in ("early", "later"))
        self.cluster.put("n0", early, ID_A, "--wait")
        self.assertEqual(self.drain("n0"), "objects that only n0 has: 0\n")
        self.cluster.put("n0", late, ID_B, "--wait")
        self.assertEqual(self.cluster.ask("drain", "n0"), {"node": "n0", "objects_left": 0, "message": ""})
        self.assertEqual(self.cluster.get("n0", ID_B), sha256(late))
        self.cluster.nodes["n0"].kill()
        for object_id, path in ((ID_A, early), (ID_B, late)):
            self.assertEqual(self.cluster.get("n1", object_id), sha256(path))

    def test_a_drain_outlives_a_restart_of_the_directory(self):
        self.start(2)
        paths = {f"{i:02x}" * 20: self.cluster.make_file(f"file{i}", 4000, seed=i) for i in range(1, 40)}
        for object_id, path in paths.items():
            self.cluster.put("n0", path, object_id)
        self.cluster.shards[0].kill()
        draining = self.cluster.begin("drain", "n0", f"--directory={self.cluster.directory}")
        self.cluster.restart_shard(0)
        self.assertEqual(self.cluster.finish(draining), "objects that only n0 has: 0\n")
        self.cluster.nodes["n0"].kill()
        for object_id, path in paths.items():
            self.assertEqual(self.cluster.get("n1", object_id), sha256(path))

    def test_a_drain_names_what_is_missing(self):
        self.start(1)
        self.cluster.put("n0", self.cluster.make_file("file", 2 * MIB), ID_A, "--wait")
        self.assertIn("objects that only n0 has: 1; object", self.drain("n0", "--detach"))
        error = self.drain("n0", "--timeout=0s", expect=4)
        self.assertIn("objects that only n0 has: 1; object", error)
        self.assertIn("no other node has room for it", error)
        self.assertIn("no node is named n7", self.drain("n7", expect=NOT_FOUND))

    def test_a_sole_copy_without_a_target_is_reported_at_the_deadline(self):
        self.start(1, ["--drain-timeout=300ms"])
        self.cluster.put("n0", self.cluster.make_file("file", 2 * MIB), ID_A, "--wait")
        self.cluster.nodes["n0"].signal(signal.SIGTERM)
        self.assert_dies(self.cluster.nodes["n0"], 4)

    def test_a_second_signal_leaves_at_once(self):
        self.start(1, ["--drain-timeout=1h"])
        self.cluster.put("n0", self.cluster.make_file("file", 2 * MIB), ID_A, "--wait")
        node = self.cluster.nodes["n0"]
        node.signal(signal.SIGTERM)
        self.cluster.follow(lambda look: look["nodes"][0]["draining"], "status")
        self.assertIn("a second signal", node.wait_for_log("only this node has"))
        node.signal(signal.SIGTERM)
        self.assert_dies(node, 0)

    def test_an_empty_node_leaves_at_once_even_without_a_directory(self):
        self.start(1, ["--drain-timeout=1h"])
        self.cluster.shards[0].kill()
        self.cluster.nodes["n0"].signal(signal.SIGTERM)
        self.assert_dies(self.cluster.nodes["n0"], 0)

    def start_full_node(self, drain, nodes=1):
        """Start nodes that would drain for this long, with an object on the first of them."""
        self.start(nodes, [f"--drain-timeout={drain}"])
        self.cluster.put("n0", self.cluster.make_file("file", 2 * MIB), ID_A, "--wait")
        return self.cluster.nodes["n0"]

    def test_a_node_whose_directory_has_ended_leaves_soon(self):
        node = self.start_full_node("10s")
        self.cluster.shards[0].signal(signal.SIGTERM)
        self.assert_dies(self.cluster.shards[0], OK)
        node.signal(signal.SIGTERM)
        self.assert_dies(node, UNAVAILABLE)
        self.assertIn("no shard of the directory can be reached", node.log())

    def test_a_node_leaves_soon_after_its_directory_has_ended(self):
        node = self.start_full_node("10s")
        node.signal(signal.SIGTERM)
        self.cluster.follow(lambda look: look["nodes"][0]["draining"], "status")
        self.cluster.shards[0].kill()
        self.assert_dies(node, UNAVAILABLE)

    def test_a_node_that_leaves_awaits_a_directory_that_restarts(self):
        node = self.start_full_node("1h", nodes=2)
        self.cluster.shards[0].kill()
        node.signal(signal.SIGTERM)
        node.wait_for_log("leaving")
        self.cluster.restart_shard(0)
        self.assert_dies(node, OK)
        self.assertEqual(self.cluster.get("n1", ID_A), sha256(self.cluster.path("file")))

    def test_a_node_that_left_leaves_no_socket_behind(self):
        self.start(1)
        path = self.cluster.nodes["n0"].client_address.removeprefix("unix:")
        self.cluster.nodes["n0"].signal(signal.SIGINT)
        self.assert_dies(self.cluster.nodes["n0"], 0)
        self.assertFalse(os.path.exists(path))

    def test_the_log_continues_in_a_new_file_after_a_hangup(self):
        log = pathlib.Path(self.cluster.path("own.log"))
        self.cluster.start_shards(1, [f"--log-file={log}"])
        log.rename(self.cluster.path("old.log"))
        shard = self.cluster.shards[0]
        shard.signal(signal.SIGHUP)
        shard.signal(signal.SIGTERM)
        self.assert_dies(shard, 0)
        self.assertIn("leaving", log.read_text())


# Starts a private cluster like the library, prints its address and process id, and waits.
PARENT = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
daemon = subprocess.Popen([sys.argv[1], "up", "--embedded-fd=%d" % theirs.fileno(), "--capacity=64MiB"],
                          pass_fds=[theirs.fileno()])
theirs.close()
line = ours.makefile().readline()
print(daemon.pid, line.strip(), flush=True)
sys.stdin.read()
"""


class EmbeddedTest(ClusterTest):
    def setUp(self):
        super().setUp()
        # Private clusters make their folders there, and some of them are killed.
        patch = unittest.mock.patch.dict(os.environ, XDG_RUNTIME_DIR=self.cluster.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def start_parent(self):
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, BINARY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        self.addCleanup(parent.communicate)
        self.addCleanup(parent.kill)
        pid, word, address = parent.stdout.readline().split()
        self.assertEqual(word, "READY")
        return parent, int(pid), address

    def test_a_private_cluster_works_and_tools_find_its_secret(self):
        _, _, address = self.start_parent()
        path = self.cluster.make_file("file", 2 * MIB)
        at = f"--address={address}"
        self.cluster.run("put", path, f"--id={ID_A}", at)
        out = self.cluster.path("out")
        self.cluster.run("get", ID_A, "-o", out, at)
        self.assertEqual(sha256(out), sha256(path))
        self.assertIn("1 complete", self.cluster.run("describe", ID_A, at))

    def test_a_private_cluster_ends_with_its_killed_parent(self):
        parent, pid, address = self.start_parent()
        folder = os.path.dirname(address.removeprefix("unix:"))
        self.assertTrue(os.path.isdir(folder))
        parent.kill()
        wait_for_end(pid)
        self.assertFalse(os.path.exists(folder))

    def test_the_folder_of_a_killed_private_cluster_is_removed_by_the_next_and_a_live_ones_is_kept(self):
        folders = []
        for kill in (False, True, False):
            _, pid, address = self.start_parent()
            folders.append(os.path.dirname(address.removeprefix("unix:")))
            if kill:
                os.kill(pid, signal.SIGKILL)
                wait_for_end(pid)
                self.assertTrue(os.path.exists(os.path.join(folders[-1], "secret")))
        self.assertEqual([os.path.isdir(folder) for folder in folders], [True, False, True])

    def start_program(self):
        """Start a C++ program with a private cluster, and return the cluster's process id and folder."""
        program = subprocess.Popen(
            tied(HOLDER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment(), "PHALANX_BINARY": BINARY},
            text=True,
        )
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        program.stdin.write(f"put {ID_A} 100\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), "OK\n")
        (pid,) = (int(pid) for pid in pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split())
        (folder,) = (fd for fd in map(pathlib.Path.readlink, pathlib.Path(f"/proc/{pid}/fd").iterdir()) if fd.name == "owner")
        return pid, folder.parent

    def test_killed_clusters_of_the_command_and_of_programs_remove_each_others_folders(self):
        up = Daemon(["up", "--capacity=64MiB", "--json"], self.cluster.path("up.log"))
        self.addCleanup(up.close)
        folder = pathlib.Path(json.loads(up.read_line())["secret_file"]).parent
        up.kill()
        self.assertTrue((folder / "secret").exists())
        pid, of_program = self.start_program()
        self.assertFalse(folder.exists())
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        self.assertTrue((of_program / "secret").exists())
        again = Daemon(["up", "--capacity=64MiB", "--json"], self.cluster.path("again.log"))
        self.addCleanup(again.close)
        again.read_line()
        self.assertFalse(of_program.exists())

    def test_a_private_cluster_that_cannot_start_reports_the_cause(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = subprocess.Popen(
                [BINARY, "up", f"--embedded-fd={theirs.fileno()}", "--log-file=/dev/null/log"],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.DEVNULL,
                env=environment(),
            )
            theirs.close()
            with ours.makefile() as lines:
                self.assertIn("ERROR", lines.readline())
            self.assertNotEqual(process.wait(DEADLINE_S), 0)

    def test_a_private_cluster_does_not_wait_for_nodes_of_an_earlier_life(self):
        up = Daemon(["up", "--capacity=64MiB", "--lease=1h", "--json"], self.cluster.path("up.log"))
        self.addCleanup(up.close)
        at = f"--address={json.loads(up.read_line())['socket']}"
        self.cluster.run("put", self.cluster.make_file("file", MIB), f"--id={ID_A}", "--wait", at)
        self.cluster.run("reduce", ID_B, ID_A, "--dtype=u8", at)
        self.cluster.run("rm", ID_A, at)
        # It answers for an unknown object too.
        self.cluster.run("rm", "cc" * 20, at, expect=NOT_FOUND)

    def test_a_private_cluster_has_its_sessions_within_its_process(self):
        _, pid, address = self.start_parent()
        self.cluster.run("put", self.cluster.make_file("file", MIB), f"--id={ID_A}", "--wait", f"--address={address}")
        sockets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        lines = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        ours = [(fields[2], fields[3]) for fields in lines if f"socket:[{fields[9]}]" in sockets]
        listening = "0A"
        self.assertNotEqual(ours, [], "tools and peers are listened to")
        self.assertEqual({state for _, state in ours}, {listening})

    def test_up_prints_how_to_use_the_cluster(self):
        up = Daemon(["up", "--capacity=64MiB"], self.cluster.path("up.log"))
        self.addCleanup(up.close)
        text = ""
        while "Ctrl-C" not in text:
            text += up.read_line() + "\n"
        self.assertIn("export PHALANX_ADDRESS=unix:/", text)
        up.signal(signal.SIGINT)
        self.assertEqual(up.wait(), 0)

    def test_up_ends_with_its_terminal(self):
        up = Daemon(["up", "--capacity=64MiB", "--json"], self.cluster.path("up.log"))
        self.addCleanup(up.close)
        socket_path = json.loads(up.read_line())["socket"].removeprefix("unix:")
        up.signal(signal.SIGHUP)
        self.assertEqual(up.wait(), 0)
        self.assertFalse(os.path.exists(os.path.dirname(socket_path)))

    def test_up_outlives_its_terminal_if_it_ignores_the_hangup(self):
        ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
        up = Daemon(["up", "--capacity=64MiB", "--json"], self.cluster.path("up.log"), preexec_fn=ignore)
        self.addCleanup(up.close)
        at = f"--address={json.loads(up.read_line())['socket']}"
        up.signal(signal.SIGHUP)
        self.cluster.run("put", self.cluster.make_file("file", MIB), at)
        up.signal(signal.SIGTERM)
        self.assertEqual(up.wait(), 0)

    def test_a_private_cluster_outlives_the_terminal_of_its_program(self):
        _, pid, address = self.start_parent()
        os.kill(pid, signal.SIGHUP)
        self.cluster.run("put", self.cluster.make_file("file", MIB), f"--address={address}")


if __name__ == "__main__":
    unittest.main()
