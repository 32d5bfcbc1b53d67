"""Input from users, peers and strangers that daemons and commands refuse, and their error texts."""

import contextlib
import os
import random
import resource
import selectors
import socket
import time
import unittest

from tests.process.harness import DEADLINE_S, ID_A, ID_B, ClusterTest, own_bytes, sha256

MIB = 1 << 20

# Input of strangers: nothing, noise, other protocols, huge lengths, the start of our own protocol.
GARBAGE = (
    b"",
    b"\x00",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 300,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff\xff\xff\x01" * 64,
    b"\xff" * 65536,
    b"PHLX" + b"\xff" * 1000,
    b"PHLX\x01\x00\x00\x00\xff\xff\xff\xff",
    bytes(range(256)) * 64,
)
# The start of HTTP/2, and frames that require an answer: PING and SETTINGS.
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
FLOODS = (b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"12345678", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")


class RefusalTest(ClusterTest):
    def fail_to_start(self, *arguments, expect):
        """Return the error text of a daemon that does not start."""
        return self.cluster.finish(self.cluster.begin(*arguments), expect)

    def start_one(self, arguments=()):
        self.cluster.start_shards(1, arguments)
        self.cluster.start_nodes(1, arguments)

    def check_works(self):
        path = self.cluster.make_file("check", 100000)
        self.cluster.put("n0", path, ID_A)
        self.assertEqual(self.cluster.get("n0", ID_A), sha256(path))
        self.cluster.run("rm", ID_A, node="n0")

    # ---- strangers

    def connections(self):
        """Return a connection to each of the two ports and the socket."""
        for daemon in (self.cluster.nodes["n0"], self.cluster.shards[0]):
            host, port = daemon.address.rsplit(":", 1)
            yield lambda place=(host, int(port)): socket.create_connection(place, DEADLINE_S)
        path = self.cluster.nodes["n0"].client_address.removeprefix("unix:")

        def connect():
            local = socket.socket(socket.AF_UNIX)
            local.settimeout(DEADLINE_S)
            local.connect(path)
            return local

        yield connect

    def test_garbage_on_every_port_and_socket_is_harmless(self):
        self.start_one()
        for connect in self.connections():
            for garbage in GARBAGE:
                with connect() as stranger:
                    try:
                        stranger.sendall(garbage)
                        stranger.shutdown(socket.SHUT_WR)
                        # The daemon closes the connection after any answer.
                        while stranger.recv(65536):
                            pass
                    except TimeoutError:
                        raise
                    except OSError:
                        pass
        self.check_works()

    def wait_until_all_are_closed(self, strangers):
        """Read all answers, such as a greeting, until the other side has closed each connection."""
        end = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            for stranger in strangers:
                selector.register(stranger, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0, end - time.monotonic()))
                self.assertTrue(ready, f"{len(selector.get_map())} are open after {DEADLINE_S} s")
                for key, _ in ready:
                    try:
                        received = key.fileobj.recv(65536)
                    except ConnectionError:
                        received = b""
                    if not received:
                        selector.unregister(key.fileobj)

    def test_silent_and_incomplete_connections_are_closed(self):
        self.start_one()
        strangers = []
        for connect in self.connections():
            for beginning in (b"", b"PRI * HT", b"PHLX"):
                strangers.append(connect())
                self.addCleanup(strangers[-1].close)
                strangers[-1].sendall(beginning)
        self.check_works()
        self.wait_until_all_are_closed(strangers)
        self.check_works()

    def test_noise_at_the_ports_takes_no_memory(self):
        self.start_one()
        daemons = (self.cluster.nodes["n0"], self.cluster.shards[0])
        before = {daemon: own_bytes(daemon.pid) for daemon in daemons}
        noise = random.Random(1)
        for connect in list(self.connections())[:2]:
            for beginning in (b"", HTTP2) * 100:
                with connect() as stranger, contextlib.suppress(ConnectionError):
                    stranger.sendall(beginning + noise.randbytes(4096))
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(65536):
                        pass
        for daemon in daemons:
            self.assertLess(own_bytes(daemon.pid) - before[daemon], 32 * MIB, daemon.arguments[0])
        self.check_works()

    def test_answers_to_a_peer_that_does_not_read_are_bounded(self):
        self.start_one()
        shard = self.cluster.shards[0]
        host, port = shard.address.rsplit(":", 1)
        before = own_bytes(shard.pid)
        for frame in FLOODS:
            with socket.create_connection((host, int(port)), DEADLINE_S) as stranger:
                # The connection is closed, or the daemon no longer reads from it.
                stranger.settimeout(1)
                with self.assertRaises(OSError):
                    stranger.sendall(HTTP2)
                    for _ in range(1000):
                        stranger.sendall(frame * 10_000)
                self.check_works()
        self.assertLess(own_bytes(shard.pid) - before, 256 * MIB)

    def test_many_connections_at_once_leave_room_for_work(self):
        self.start_one()
        strangers = [connect() for connect in self.connections() for _ in range(100)]
        self.check_works()
        for stranger in strangers:
            stranger.close()

    # ---- other clusters

    def secret_file(self, name, text):
        path = self.cluster.path(name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        return f"--secret-file={path}"

    def test_a_node_with_another_secret_is_refused(self):
        right = self.secret_file("right", "correct horse")
        wrong = self.secret_file("wrong", "battery staple")
        self.cluster.tool_arguments = [right]
        self.start_one([right])
        node = self.cluster.start_node("stranger", [wrong])
        self.assertIn("secret", node.wait_for_log("PERMISSION_DENIED"))
        node = self.cluster.start_node("naked")
        node.wait_for_log("PERMISSION_DENIED")
        self.assertEqual([node["name"] for node in self.cluster.ask("status")["nodes"]], ["n0"])
        self.cluster.run("status", wrong, f"--directory={self.cluster.directory}", expect=1)

    def test_a_node_of_another_cluster_is_refused_with_both_names(self):
        self.start_one()
        node = self.cluster.start_node("stranger", ["--cluster-id=other"])
        line = node.wait_for_log("FAILED_PRECONDITION")
        self.assertIn("other", line)
        self.assertIn("default", line)

    def test_a_node_with_another_list_of_shards_is_refused(self):
        self.cluster.start_shards(2)
        node = self.cluster.start_node("n0", directory=self.cluster.shards[0].address)
        node.wait_for_log("FAILED_PRECONDITION")
        swapped = ",".join(shard.address for shard in reversed(self.cluster.shards))
        node = self.cluster.start_node("n1", directory=swapped)
        node.wait_for_log("FAILED_PRECONDITION")

    # ---- starting up

    def test_without_a_secret_only_loopback_is_listened_on(self):
        error = self.fail_to_start("directory", "--listen=0.0.0.0:0", expect=1)
        self.assertIn("secret", error)
        error = self.fail_to_start(
            "node", "--listen=0.0.0.0:0", f"--socket={self.cluster.path('x.sock')}", expect=1
        )
        self.assertIn("secret", error)

    def test_ports_and_sockets_in_use_are_named(self):
        self.start_one()
        shard, node = self.cluster.shards[0], self.cluster.nodes["n0"]
        error = self.fail_to_start("directory", f"--listen={shard.address}", expect=1)
        self.assertIn(shard.address, error)
        error = self.fail_to_start(
            "node", f"--listen={node.address}", f"--socket={self.cluster.path('y.sock')}", expect=1
        )
        self.assertIn(node.address, error)
        path = node.client_address.removeprefix("unix:")
        error = self.fail_to_start("node", "--listen=127.0.0.1:0", f"--socket={path}", expect=1)
        self.assertIn(path, error)
        self.check_works()

    def test_bad_settings_are_named(self):
        wrong = {
            "--listen=nowhere": ("directory",),
            "--lease=1ms": ("directory",),
            "--shard-index=1": ("directory", "--num-shards=1"),
            "--capacity=lots": ("node",),
            "--label=zone": ("node",),
            "--directory=host": ("node",),
            "--advertise=host": ("node",),
            "--secret-file=/nonexistent": ("directory",),
        }
        for setting, (command, *others) in wrong.items():
            own = f"--socket={self.cluster.path('z.sock')}" if command == "node" else "--listen=127.0.0.1:0"
            process = self.cluster.begin(command, own, *others, setting)
            _, error = process.communicate(timeout=DEADLINE_S)
            self.assertIn(process.returncode, (1, 2, 3), setting)
            self.assertIn(f"phalanx {command}: ", error, setting)

    def test_a_node_waits_for_a_directory_that_is_not_there_yet(self):
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{place.getsockname()[1]}"
        node = self.cluster.start_node("n0", directory=address)
        node.wait_for_log("waiting for the directory")
        self.cluster.shards.append(self.cluster.start_shard(0, 1, listen=address))
        self.cluster.wait_for_nodes(1)
        self.assertEqual(node.log().count("waiting for the directory"), 1)
        self.check_works()

    def test_few_descriptors_are_enough_to_work_with(self):
        self.cluster.start_shards(1)
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        self.cluster.start_node("n0", preexec_fn=limit)
        self.cluster.start_node("n1", preexec_fn=limit)
        self.cluster.wait_for_nodes(2)
        path = self.cluster.make_file("file", 2 * MIB)
        self.cluster.put("n0", path, ID_A)
        self.assertEqual(self.cluster.get("n1", ID_A), sha256(path))

    # ---- commands

    def test_commands_exit_with_the_code_of_the_error(self):
        self.start_one()
        run = self.cluster.run
        run("get", "--timeout=100ms", "-o", "/dev/null", ID_A, node="n0", expect=4)
        run("rm", ID_A, node="n0", expect=3)
        run("get", "xyz", node="n0", expect=2)
        run("get", node="n0", expect=2)
        run("put", "/nonexistent/file", node="n0", expect=3)
        run("put", self.cluster.folder, node="n0", expect=2)
        run("describe", ID_A, f"--directory={self.cluster.directory}", expect=3)
        run("get", ID_A, "--address=unix:/nonexistent.sock", "--connect-timeout=100ms", expect=5)
        run("status", "--directory=127.0.0.1:1", "--directory-timeout=2s", expect=5)
        run("nonsense", expect=2)
        run("put", expect=2)

    def test_a_second_put_of_another_size_is_refused(self):
        self.start_one()
        self.cluster.put("n0", self.cluster.make_file("a", 70000), ID_A, "--wait")
        self.cluster.put("n0", self.cluster.make_file("b", 70001), ID_A, expect=1)
        self.cluster.put("n0", self.cluster.make_file("c", 70000, seed=9), ID_A)

    def test_a_put_larger_than_the_capacity_is_refused(self):
        self.start_one()
        path = self.cluster.make_file("file", 65 * MIB)
        error = self.cluster.put("n0", path, ID_A, "--timeout=300ms", expect=1)
        self.assertIn("RESOURCE_EXHAUSTED", error)
        self.check_works()

    def test_a_put_that_finds_the_node_full_waits_until_its_deadline(self):
        self.start_one()
        path = self.cluster.make_file("file", 40 * MIB)
        self.cluster.put("n0", path, ID_A)
        begun = time.monotonic()
        error = self.cluster.put("n0", path, ID_B, "--timeout=300ms", expect=1)
        self.assertGreaterEqual(time.monotonic() - begun, 0.3)
        self.assertIn("RESOURCE_EXHAUSTED", error)
        self.cluster.run("rm", ID_A, node="n0")
        self.check_works()

    def test_a_file_of_proc_is_stored_with_its_content(self):
        self.start_one()
        self.cluster.put("n0", "/proc/version", ID_A)
        self.assertEqual(self.cluster.get("n0", ID_A), sha256("/proc/version"))


if __name__ == "__main__":
    unittest.main()
