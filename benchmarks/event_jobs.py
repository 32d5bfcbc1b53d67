"""Processes of a job that append their events to files: started on hosts, killed, and started again."""

import os
import signal
import subprocess
import time

# How long an event is waited for.
PATIENCE_S = 120
POLL_S = 0.002


class EventJob:
    """The processes of one job, by key, from start to stop."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        # The last life of each process, when it was started, and the length of its events before.
        self.processes, self.began, self.behind = {}, {}, {}
        # Those of earlier lives that were stopped.
        self.stopped = []
        self.folder = cluster.folder / name
        self.folder.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Once each: a stopped one that was not started again is the last life, too.
        ended = {process.pid: process for process in (*self.processes.values(), *self.stopped)}.values()
        for process in ended:
            process.kill()
        for process in ended:
            process.communicate()

    def start_process(self, key, host, command, environment):
        """Starts the next life of a process; `command` has its path(key) in it."""
        self.path(key).touch()
        self.behind[key] = self.path(key).stat().st_size
        self.began[key] = time.monotonic_ns()
        self.processes[key] = self.cluster.hosts.popen(
            host, command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **environment})

    def kill(self, keys):
        """Returns the instant before the first of these processes is killed, when all of them have ended."""
        killed = time.monotonic_ns()
        for key in keys:
            self.processes[key].kill()
        for key in keys:
            # It may come back as another process.
            self.processes.pop(key).communicate()
        return killed

    def stop(self, keys):
        """Returns the instant before the first of these processes is stopped. They do not go on."""
        stopped = time.monotonic_ns()
        for key in keys:
            self.processes[key].send_signal(signal.SIGSTOP)
            self.stopped.append(self.processes[key])
        return stopped

    def events(self, key):
        """Returns (word, instant, number) of each event of the process's last life."""
        with open(self.path(key)) as file:
            file.seek(self.behind[key])
            # A line can be half written.
            lines = file.read().split("\n")[:-1]
        return [(word, int(nanos), int(number)) for word, nanos, number in (line.split() for line in lines)]

    def wait_for(self, key, fits, patience_s=PATIENCE_S):
        """Returns the first event of the process's last life that fits."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            for event in self.events(key):
                if fits(*event):
                    return event
            self.check()
            time.sleep(POLL_S)
        raise SystemExit(f"{self.title(key)} did not go on within {patience_s} s")

    def check(self):
        for key, process in self.processes.items():
            if process.poll() not in (None, 0):
                raise SystemExit(f"{self.title(key)} failed ({process.returncode}): {process.stderr.read().strip()}")

    def title(self, key):
        return f"{key} of {self.name}"

    def path(self, key):
        return self.folder / f"{key}.events"
