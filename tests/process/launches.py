"""Running `phalanx launch` in tests."""

import os
import subprocess
import unittest.mock

from tests.process.harness import BINARY, DEADLINE_S, OK, ClusterTest, environment, tied

SCHEDULERS = ("SLURM_", "JOB_COMPLETION_")
NO_CLUSTER = "--address=unix:/nonexistent"  # for tasks that need none


class LaunchCase(ClusterTest):
    """Tests that start launches."""

    def setUp(self):
        super().setUp()
        # Private clusters make their folders there, and some of them are killed.
        patch = unittest.mock.patch.dict(os.environ, XDG_RUNTIME_DIR=self.cluster.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def begin(self, *arguments, variables=None, **popen):
        kept = {key: value for key, value in environment().items() if not key.startswith(SCHEDULERS)}
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        launch = subprocess.Popen(
            tied(BINARY, "launch", *arguments), env={**kept, **(variables or {})}, **{**settings, **popen}
        )
        self.addCleanup(self.cluster.discard, launch)
        return launch

    def launch(self, *arguments, expect=OK, **settings):
        """Run a launch to its end, and return its output and its errors."""
        launch = self.begin(*arguments, **settings)
        out, err = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual(launch.returncode, expect, (arguments, out, err))
        return out, err

    def fifo(self, name="fifo"):
        path = self.cluster.path(name)
        os.mkfifo(path)
        return path
