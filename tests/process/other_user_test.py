"""The operations that another user of the host is refused. Runs outside Bazel's sandbox, which has only one user."""

import os
import pathlib
import shutil
import subprocess
import unittest

from tests.process.harness import BINARY, DEADLINE_S, ID_A, OK, ClusterTest, environment
from tests.process.launches import NO_CLUSTER, LaunchCase

OTHER_USER = 65534
# Sends a text to the socket of a launch.
SENDER = """
import socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), sys.argv[1])
"""


class OtherUserTest(ClusterTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can start a process of another user")
        self.cluster.start_shards(1)
        self.cluster.start_nodes(1)
        # Other users may lack access to the build's folders, so the executable is copied.
        self.binary = shutil.copy(BINARY, self.cluster.path("phalanx"))
        os.chmod(self.cluster.folder, 0o755)

    def get_as_other_user(self):
        path = self.cluster.nodes["n0"].client_address
        return subprocess.run(
            [self.binary, "get", ID_A, "--timeout=1s", f"--address={path}", "--connect-timeout=2s"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=environment(),
            user=OTHER_USER,
            check=False,
        )

    def socket_path(self):
        return self.cluster.nodes["n0"].client_address.removeprefix("unix:")

    def test_the_socket_has_the_permissions_of_its_owner_only(self):
        self.assertEqual(os.stat(self.socket_path()).st_mode & 0o777, 0o600)
        process = self.get_as_other_user()
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("denied", process.stderr.lower())

    def test_another_user_is_refused_despite_the_files_permissions(self):
        os.chmod(self.socket_path(), 0o666)
        process = self.get_as_other_user()
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("PERMISSION_DENIED", process.stderr)
        # The cluster still works for its own user.
        self.cluster.put("n0", self.cluster.make_file("file", 1000), ID_A)


class OtherUserPrintTest(LaunchCase):
    def print_as(self, user, name, text):
        return subprocess.run(
            ["/usr/bin/python3", "-c", SENDER, name, text],
            user=user, check=False, timeout=DEADLINE_S, cwd="/", stderr=subprocess.PIPE, text=True,
        )

    def test_a_launch_drops_what_another_user_prints(self):
        if os.geteuid() != 0:
            self.skipTest("only root can start a process of another user")
        fifo = self.fifo()
        launch = self.begin(NO_CLUSTER, "--no-prefix", "--", "sh", "-c", f"echo $PHALANX_PRINT; read line < {fifo}")
        name = launch.stdout.readline().strip()
        folder = os.path.dirname(name)
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        theirs = self.print_as(OTHER_USER, name, "refused\n")
        self.assertIn("PermissionError", theirs.stderr)
        # Another user is refused despite the permissions of the files.
        for path in (os.path.dirname(folder), folder):
            os.chmod(path, 0o755)
        os.chmod(name, 0o666)
        for user, text in ((OTHER_USER, "theirs\n"), (None, "ours\n"), (OTHER_USER, "theirs again\n")):
            self.assertEqual(self.print_as(user, name, text).returncode, 0)
        pathlib.Path(fifo).write_text("end\n")
        out, err = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual((launch.returncode, out), (OK, "ours\n"))
        self.assertEqual(err, f"phalanx launch: dropping what processes of user {OTHER_USER} print\n")


if __name__ == "__main__":
    unittest.main()
