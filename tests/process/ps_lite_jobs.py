"""Jobs of programs for ps-lite, for tests: processes with DMLC_* variables, and launches of them."""

import os
import signal
import socket
import subprocess

from tests.process.harness import BINARY, DEADLINE_S, OK, ClusterTest, environment, tied

PROGRAMS = os.path.abspath("src/ps_lite/testing")
CASES = f"{PROGRAMS}/cases"
LIBRARY = os.environ.get("PHALANX_LIBRARY", os.path.abspath("src/client/sdk/libphalanx.so"))
# An exception that nothing catches: dmlc::Error.
ABORTED = -signal.SIGABRT


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PsLiteJobs(ClusterTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def variables(self, role, servers=2, workers=2, **more):
        return {
            **environment(),
            "DMLC_ROLE": role,
            "DMLC_NUM_SERVER": str(servers),
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(self.port),
            "PHALANX_BINARY": BINARY,
            "PHALANX_LIBRARY": LIBRARY,
            "PHALANX_PS_TIMEOUT": str(DEADLINE_S),
            # Of private clusters, some of which are killed.
            "XDG_RUNTIME_DIR": self.cluster.folder,
            **more,
        }

    def begin(self, variables, *command):
        process = subprocess.Popen(
            tied(*command), env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.cluster.discard, process)
        return process

    def job(self, *command, servers=2, workers=2, processes=None, addresses=None, **more):
        """Start a job, and return its processes by role and rank."""
        places = [("scheduler", 0), *(("server", rank) for rank in range(servers))]
        places += [("worker", rank) for rank in range(processes or workers)]
        job = {}
        for index, (role, rank) in enumerate(places):
            own = self.variables(role, servers, workers, DMLC_RANK=str(rank), **more)
            if addresses is not None:
                own["PHALANX_ADDRESS"] = addresses[index % len(addresses)]
            job[role, rank] = self.begin(own, *command)
        return job

    def end(self, process, expect=OK):
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"it hangs: {process.communicate()}") from None
        self.assertEqual(process.returncode, expect, (out, err))
        return out, err

    def check(self, *command, **settings):
        """Run a job to its end, and return the errors of its processes."""
        return {place: self.end(process)[1] for place, process in self.job(*command, **settings).items()}

    def launch(self, *command, flags=(), **more):
        variables = {**environment(), "PHALANX_LIBRARY": LIBRARY, "PHALANX_CAPACITY": "64MiB",
                     "XDG_RUNTIME_DIR": self.cluster.folder, **more}
        return self.begin(variables, BINARY, "launch", "--servers=2", "--workers=2", *flags, "--", *command)
