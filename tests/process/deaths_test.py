"""Deaths on order (`phalanx launch --fail`, `mock=`) at every point where the library makes them."""

import array
import collections
import os
import re
import signal
import socket
import struct
import threading
import unittest

from tests.process.harness import BINARY, DEADLINE_S, ERROR, OK
from tests.process.launches import LaunchCase

MEMBER = os.path.abspath("tests/process/launch_member")
RANK = os.path.abspath("tests/process/spmd_rank")
NODES = 3
ITERATIONS = 3
LINE = re.compile(r"\[worker(\d+)\] (start|load|prepare|saved|end) (.*)$")
# The call of Join, and the two of the first Broadcast; then the Allreduce of the first iteration.
ALLREDUCE = 4
# The Broadcast of the sizes of a vector, which has 16 bytes at its root, rank 0; the vector has 12 bytes.
SIZES = 5
PER_ITERATION = 6


# Kinds of messages of a client: a call of a group, and more of the input of one.
GROUP_CALL, GROUP_FILLED = 50, 52


class Tap:
    """A socket in front of a node's, which keeps what its clients send, by connection."""

    def __init__(self, path, node):
        self.node = node
        self.sent = []
        self.pumps = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            node = socket.socket(socket.AF_UNIX)
            node.connect(self.node)
            self.sent.append(bytearray())
            for ends in ((client, node, self.sent[-1]), (node, client, bytearray())):
                pump = threading.Thread(target=self.pump, args=ends, daemon=True)
                pump.start()
                self.pumps.append(pump)

    def pump(self, source, target, kept):
        try:
            while True:
                data, fds, _, _ = socket.recv_fds(source, 1 << 16, 8)
                if not data:
                    break
                kept += data
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                size = target.sendmsg([data], rights)
                for fd in fds:
                    os.close(fd)
                target.sendall(data[size:])
        except OSError:
            pass  # The other end is gone.
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def last_input(self, connection):
        """Of the input of a client's last call, return its size, what is in the message, and what is in the node's memory."""
        self.pumps[2 * connection].join(DEADLINE_S)
        data, at = bytes(self.sent[connection]), 0
        call, filled = b"", 0
        while at + 4 <= len(data):
            (length,) = struct.unpack_from("<I", data, at)
            frame = data[at + 4 : at + 4 + length]
            at += 4 + length
            if frame[0] == GROUP_CALL:
                call, filled = frame, 0
            elif frame[0] == GROUP_FILLED and frame[1:9] == call[1:9]:
                filled += struct.unpack_from("<Q", frame, 17)[0]
        # The end of a call: the size of an input in a buffer, the bytes of one in the message, and where the first part is.
        size, inline, _, first = struct.unpack("<QIQQ", call[-28:])
        return size, inline, first + filled


class DeathsTest(LaunchCase):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards()
        self.cluster.start_hosts("abc")
        self.jobs = 0

    def session(self, count, *fail, flags=(), expect=OK):
        """Run a rank on each node, with floats of this number; return its lines by rank, the hash, and the errors."""
        self.jobs += 1
        launches = []
        for i, node in enumerate(self.cluster.nodes.values()):
            mine = [f"--fail={each}" for each in fail if each.startswith(f"{i}@")]
            launches.append(self.begin(
                f"--world={NODES}", f"--first={i}", f"--job=job{self.jobs}", "--restarts=9", *mine, *flags,
                f"--address={node.client_address}", "--", RANK, str(ITERATIONS), str(count), "eager",
            ))
        lines = collections.defaultdict(lambda: collections.defaultdict(list))
        errors = ""
        for i, launch in enumerate(launches):
            out, err = launch.communicate(timeout=DEADLINE_S)
            wanted = expect if any(each.startswith(f"{i}@") for each in fail) else OK
            self.assertEqual(launch.returncode, wanted, out + err)
            errors += err
            for line in out.splitlines():
                if match := LINE.match(line):
                    lines[int(match[1])][match[2]].append(match[3])
        (result,) = {text.split()[0] for of in lines.values() for text in of["end"]}
        self.assertEqual(sorted(lines), list(range(NODES)))
        return lines, result, errors

    def lives(self, lines, rank):
        return [int(text.split()[1]) for text in lines[rank]["start"]]

    def test_a_death_at_any_byte_of_an_input_leaves_the_bits_of_a_run_without(self):
        # Inputs that travel in a message, that are complete when a call begins, and that are copied beside it.
        for count, at in (
            (1000, (0, 1, 1999, 3999)),
            (30_000, (0, 65_537, 119_999)),
            (200_000, (0, 100_001, 131_072, 400_000, 799_999)),
        ):
            _, calm, _ = self.session(count)
            for byte in at:
                with self.subTest(count=count, byte=byte):
                    death = f"1@{ALLREDUCE + PER_ITERATION}:put:{byte}"
                    lines, result, errors = self.session(count, death)
                    self.assertEqual((result, self.lives(lines, 1)), (calm, [0, 1]))
                    self.assertEqual(errors.count("worker1 ended by signal 9 (Killed): starting it again (life 1"), 1, errors)

    def test_the_node_has_just_the_bytes_that_the_death_names(self):
        node = next(iter(self.cluster.nodes.values())).client_address.removeprefix("unix:")
        for count, at in ((1000, (0, 1, 3999)), (30_000, (65_537,)), (200_000, (0, 131_072, 400_001, 799_999))):
            for byte in at:
                with self.subTest(count=count, byte=byte):
                    self.jobs += 1
                    tap = Tap(self.cluster.path(f"tap{self.jobs}"), node)
                    self.launch(
                        f"--job=job{self.jobs}", f"--fail=0@{ALLREDUCE}:put:{byte}",
                        f"--address=unix:{self.cluster.path(f'tap{self.jobs}')}", "--", RANK, str(ITERATIONS), str(count), "eager",
                        expect=128 + signal.SIGKILL,
                    )
                    tap.listener.close()
                    self.assertEqual(tap.last_input(0), (4 * count, 0, byte))

    def test_an_input_that_is_given_before_that_byte_leaves_the_death_unmade(self):
        for death in (f"1@{ALLREDUCE}:put:4000", f"1@{SIZES}:put:0", "1@1000:put:0"):
            with self.subTest(death=death):
                lines, _, errors = self.session(1000, death, expect=ERROR)
                self.assertIn(f"declared death {death} was not made: worker1 ended with exit code 0 in life 0", errors)
                self.assertEqual(self.lives(lines, 1), [0])
        _, _, errors = self.session(1000, f"1@{ALLREDUCE}:put:4000", flags=("--unfired=warn",))
        self.assertIn("was not made", errors)

    def test_the_root_of_a_broadcast_dies_within_its_input(self):
        # The next life's first call is the one in which the last one has died: the others are repeated.
        _, calm, _ = self.session(1000)
        lines, result, _ = self.session(1000, f"0@{SIZES}:put:8", "0@1:put:7")
        self.assertEqual((result, self.lives(lines, 0)), (calm, [0, 1, 2]))

    def test_ranks_die_in_the_points_of_a_session(self):
        _, calm, _ = self.session(1000)
        for deaths, loads in (
            (["2@load"], ["0"]),
            # The checkpoint is written and does not count: the others cannot have gone on.
            (["2@checkpoint"], ["0", "0"]),
            (["2@checkpoint:2"], ["0", "1"]),
            (["2@leave"], ["0", "2"]),
            (["2@checkpoint:3", "2@load", "2@checkpoint:1", "2@leave"], ["0", "2", "2", "2"]),
        ):
            with self.subTest(deaths=deaths):
                lines, result, _ = self.session(1000, *deaths)
                self.assertEqual(result, calm)
                self.assertEqual(self.lives(lines, 2), list(range(len(deaths) + 1)))
                self.assertEqual(lines[2]["load"], loads)

    def test_a_death_that_a_session_does_not_come_to_is_not_made(self):
        for death in (f"2@checkpoint:{ITERATIONS + 1}", "2@1000"):
            _, _, errors = self.session(1000, death, expect=ERROR)
            self.assertIn(f"declared death {death} was not made: worker2 ended with exit code 0 in life 0", errors)

    def test_a_library_makes_deaths_that_words_declare(self):
        words = ("mock=1,0,0,0", "mock=1,3,2,1", "mock=0,0,0,1")
        node = next(iter(self.cluster.nodes.values()))
        command = ("-n2", "--restarts=5", f"--address={node.client_address}", "--", MEMBER)
        out, err = self.launch(*command, *words[:2], "print:end", stderr=None)
        self.assertEqual((out, err), ("end\nend\n", None))
        _, err = self.launch(*command, *words, expect=ERROR)
        self.assertIn("phalanx launch: declared death mock=0,0,0,1 was not made: worker0 has not had life 1 (ABORTED)", err)
        self.assertEqual(err.count("starting it again"), 2)


if __name__ == "__main__":
    unittest.main()
