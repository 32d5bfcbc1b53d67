"""Programs of peers on emulated hosts: compiled, started on every host, and ended with all of their processes."""

import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks import rabit_package, ray_package, records
from benchmarks.parameter_server import ps_lite_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The size of each of Ray's object stores.
RAY_STORE_BYTES = 800_000_000
PROGRAMS = ROOT / "benchmarks/peer_programs"
# For each program: its compiler, and the flags at the end of the command line.
COMPILERS = {
    "sockets": ("g++", []),
    "open_mpi": ("mpicxx", ["-DOMPI_SKIP_MPICXX"]),
    "gloo": ("g++", ["-lgloo"]),
    "rabit": ("g++", []),
    "ps_lite": ("g++", []),
}
# Programs with plans and records of their own.
WITHOUT_TRIAL = ("ps_lite",)
# The same as kMeetingBytes and kMaxWorld in trial.h.
MEETING_BYTES = 64 << 10
MAX_WORLD = 1024
# The limit of one launch of a peer.
LAUNCH_TIMEOUT_S = 1800


def compile_program(name, library=None):
    """Returns its executable; compiles it unless the cache has one of the same sources and command.

    `library`: a library of this tree with which ps_lite is linked in place of ps-lite.
    """
    compiler, flags = COMPILERS[name]
    if shutil.which(compiler) is None:
        raise records.BadInput(f"{compiler} is missing; scripts/setup and benchmarks/peers --setup install it (as root)")
    command = [compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", f"-I{ROOT}"]
    if name == "rabit":
        includes, flags = rabit_package.flags()
        command += includes
    if name == "ps_lite":
        includes, flags = ps_lite_package.flags() if library is None else ps_lite_package.flags_of(library)
        command += includes
    sources = [PROGRAMS / f"{name}.cc"]
    read = [*sources, library, *ps_lite_package.headers()] if library else list(sources)
    if name not in WITHOUT_TRIAL:
        sources.append(PROGRAMS / "trial.cc")
        read += [PROGRAMS / "trial.cc", PROGRAMS / "trial.h"]
    digest = hashlib.sha256(repr((command, flags)).encode())
    for source in read:
        digest.update(source.read_bytes())
    cache = ray_package.cache_folder()
    program = cache / f"{name}-{digest.hexdigest()[:16]}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        print(f"compiling {name}.cc", file=sys.stderr)
        compiled = subprocess.run(command + [str(source) for source in sources] + ["-o", str(unfinished)] + flags + ["-lpthread"],
                                  check=False)
        if compiled.returncode != 0:
            raise SystemExit(f"{name} does not compile; the compiler's messages are above")
        unfinished.rename(program)
    return str(program)


class Launch:
    """Runs all ranks of one program from start to end; none of its processes outlives it."""

    def __init__(self, hosts, program, plan, expected=None):
        """`expected`: the number of records, if it is not one for each line of the plan."""
        self.hosts, self.program = hosts, program
        # In memory: with a file on a disk, a write to a page that is being written back stalls.
        self._folder = tempfile.TemporaryDirectory(prefix="phalanx-peers-", dir="/dev/shm")
        self.folder = pathlib.Path(self._folder.name)
        self.processes = []
        self.expected = expected or len(plan)
        (self.folder / "meeting").write_bytes(bytes(MEETING_BYTES))
        (self.folder / "plan").write_text("".join(line + "\n" for line in plan))
        (self.folder / "store").mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self.processes:
            process.wait()
        self._folder.cleanup()

    def flags(self):
        addresses = [self.hosts.address(host) for host in range(self.hosts.count)]
        return ["--world", str(self.hosts.count), "--hosts", ",".join(addresses), "--plan", str(self.folder / "plan"),
                "--meeting", str(self.folder / "meeting"), "--output", str(self.folder / "records"),
                "--store", str(self.folder / "store")]

    def start(self, command, output=None):
        with open(self.folder / "errors", "a") as errors:
            # Ctrl-C must reach only this program, which ends the others itself. Separate sessions would do that too, but Linux
            # gives every session an equal share of a busy machine, and peers would get more of it than Phalanx.
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output or errors, stderr=errors,
                                                   process_group=0, env=dict(os.environ, TMPDIR=str(self.folder))))

    def start_and_read(self, command):
        """Returns the first line that the process prints."""
        self.start(command, subprocess.PIPE)
        with self.processes[-1].stdout as output:
            line = output.readline()
        if not line:
            raise SystemExit(f"{shlex.join(command)} failed\n{self.errors()}")
        return line.decode().strip()

    def wait(self, first_alone=False):
        """Waits until all ranks (or the first) have ended, or one has failed while others wait. Returns rank 0's records."""
        self.wait_for_ends(first_alone)
        lines = (self.folder / "records").read_text().splitlines()
        if len(lines) != self.expected:
            raise SystemExit(f"{self.program} made {len(lines)} records of {self.expected}\n{self.errors()}")
        return [records.summarize(json.loads(line)) for line in lines]

    def wait_for_ends(self, first_alone=False):
        """Waits until all processes (or the first) have ended, or one has failed."""
        deadline = time.monotonic() + LAUNCH_TIMEOUT_S
        poller = select.poll()
        running = {os.pidfd_open(process.pid): process for process in self.processes[:1 if first_alone else None]}
        for each in running:
            poller.register(each, select.POLLIN)
        try:
            while running:
                ended = poller.poll(max(0, deadline - time.monotonic()) * 1000)
                if not ended:
                    raise SystemExit(f"{self.program} did not end within {LAUNCH_TIMEOUT_S} s\n{self.errors()}")
                for each, _ in ended:
                    poller.unregister(each)
                    os.close(each)
                    self.check_end(running.pop(each))
        finally:
            for each in running:
                os.close(each)

    def check_end(self, process):
        """Ends this program unless the process that has ended has done its work."""
        # 1: some bytes were wrong; the records say which.
        if process.wait() not in (0, 1) or not (self.folder / "records").exists():
            raise SystemExit(f"{self.program} failed ({process.returncode})\n{self.errors()}")

    def errors(self):
        return (self.folder / "errors").read_text(errors="replace")[-4000:].strip()


def launch_ranks(hosts, program, plan):
    """Starts one process per host; the processes find each other."""
    with Launch(hosts, program, plan) as launch:
        for rank in range(hosts.count):
            launch.start(hosts.command_at(rank, [program, "--rank", str(rank)] + launch.flags()))
        return launch.wait()


def launch_rabit(hosts, program, plan):
    """Starts Rabit's own tracker on the first host, and one process per host, which find each other through it."""
    with Launch(hosts, program, plan) as launch:
        tracker = launch.folder / "tracker.py"
        tracker.write_text(rabit_package.tracker_program(hosts.address(0), hosts.count))
        port = launch.start_and_read(hosts.command_at(0, [sys.executable, str(tracker)]))
        for rank in range(hosts.count):
            place = [f"DMLC_TRACKER_URI={hosts.address(0)}", f"DMLC_TRACKER_PORT={port}", f"DMLC_TASK_ID={rank}"]
            launch.start(hosts.command_at(rank, ["env", *place, program, "--rank", str(rank)] + launch.flags()))
        return launch.wait()


def script(path, *lines):
    path.write_text("\n".join(("#!/bin/bash", "set -e") + lines) + "\n")
    path.chmod(0o755)
    return str(path)


def launch_open_mpi(hosts, program, plan):
    """Starts mpirun on the first host; it reaches the others through an agent instead of ssh.

    Open MPI identifies hosts by name and resolves the names: each host gets a name, and its processes see a list of the names in
    place of /etc/hosts. They share a namespace of process ids, so that killing its first process ends all of them.
    """
    with Launch(hosts, program, plan) as launch:
        addresses = [hosts.address(host) for host in range(hosts.count)]
        names = launch.folder / "hosts"
        names.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} node{host}\n" for host, address in enumerate(addresses)))
        entries = [f"{address}) hostname node{host}; exec {shlex.join(hosts.command_at(host, []))} bash -c \"$*\";;"
                   for host, address in enumerate(addresses)]
        inside = script(launch.folder / "inside", "address=$1", "shift", 'case "$address" in', *entries, "esac", "exit 1")
        agent = script(launch.folder / "agent", f'exec unshare --uts {inside} "$@"')
        options = {"plm_rsh_agent": agent, "pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "eth0",
                   "oob_tcp_if_include": "eth0", "mpi_yield_when_idle": "1", "coll_tuned_use_dynamic_rules": "1"}
        mpirun = ["mpirun", "--allow-run-as-root", "--leave-session-attached", "--bind-to", "none",
                  "-np", str(hosts.count), "--host", ",".join(addresses)]
        for name, value in options.items():
            mpirun += ["--mca", name, value]
        first = script(launch.folder / "first", f"mount --bind {names} /etc/hosts", "hostname node0",
                       shlex.join(hosts.command_at(0, mpirun + [program] + launch.flags())))
        launch.start(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--uts", first])
        return launch.wait()


def launch_ray(hosts, program, plan, expected=None, store_bytes=RAY_STORE_BYTES):
    """Starts a node of Ray on every host, and the driver on the first. The processes of a host share a namespace of process ids,
    so that killing its first process ends all of them."""
    ray = str(ray_package.environment() / "bin/ray")
    # The workers of benchmarks/ray import benchmarks.peer_programs.
    environment = f"export RAY_AUTH_MODE=token RAY_AUTH_TOKEN={secrets.token_hex(32)} PYTHONPATH={shlex.quote(str(ROOT))}"
    with Launch(hosts, program, plan, expected) as launch:
        for host in range(hosts.count):
            resources = json.dumps({f"host{host}": 100})
            where = ["--head", "--port=6379", "--include-dashboard=false"] if host == 0 else [f"--address={hosts.address(0)}:6379"]
            start = [ray, "start", *where, f"--node-ip-address={hosts.address(host)}", "--num-cpus=1", "--disable-usage-stats",
                     f"--resources={resources}", f"--object-store-memory={store_bytes}", f"--temp-dir={launch.folder}/{host}"]
            # The daemons of phalanx.ray end with the host, and leave nothing behind.
            own = f"/tmp/phalanx-{os.getuid()}"
            alone = [f"mkdir -p -m 700 {own}", f"mount -t tmpfs -o mode=700 hosts {own}"]
            lines = [shlex.join(start)]
            if host == 0:
                lines.append(shlex.join([str(ray_package.environment() / "bin/python3"), program] + launch.flags()))
            else:
                # Retries until the first host answers; the process then lives as long as this host.
                lines = [f"until {shlex.join(start)}; do sleep 0.2; done", "exec sleep infinity"]
            path = script(launch.folder / f"start{host}", environment, *alone, *lines)
            launch.start(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *hosts.command_at(host, [path])])
        return launch.wait(first_alone=True)
