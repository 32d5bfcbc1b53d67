"""The operations that another user of the host is refused. Runs outside Bazel's sandbox, which has only one user."""

import os
import shutil
import subprocess
import unittest

from tests.process.harness import BINARY, DEADLINE_S, ID_A, ClusterTest, environment

OTHER_USER = 65534


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


if __name__ == "__main__":
    unittest.main()
