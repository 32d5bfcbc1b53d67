"""Jobs of peer_programs/ps_lite.cc on the hosts of a benchmark, linked with ps-lite or with libps of this tree."""

import os
import pathlib
import shlex

from benchmarks import launches
from benchmarks.emulated_hosts import Loopback
from benchmarks.parameter_server import plans
from benchmarks.records import BadInput, summarize

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBPS = ROOT / "bazel-bin/src/ps_lite/libps.so"
LIBPHALANX = ROOT / "bazel-bin/src/client/sdk/libphalanx.so"
# The root's port of the first job; each further one has the next, since the port of one that has ended can be in use for a while.
FIRST_PORT = 7500


def require_libraries():
    for library in (LIBPS, LIBPHALANX):
        if not os.access(library, os.R_OK):
            raise BadInput(f"{library} is not there: scripts/bazel build //src/ps_lite:libps.so //src/client/sdk:libphalanx.so")


class Job(launches.Launch):
    """The scheduler, servers and workers of one program for ps-lite, from start to end."""

    port = FIRST_PORT

    def run(self, layout, environment_of):
        """Starts all processes, and returns the records. `environment_of(host)`: what a process has besides."""
        Job.port += 1
        common = {"DMLC_NUM_SERVER": layout.servers, "DMLC_NUM_WORKER": layout.workers,
                  "DMLC_PS_ROOT_URI": self.hosts.address(0), "DMLC_PS_ROOT_PORT": Job.port}
        places = [("scheduler", 0)]
        places += [("server", layout.host_of_server(rank)) for rank in range(layout.servers)]
        places += [("worker", layout.host_of_worker(rank)) for rank in range(layout.workers)]
        for role, host in places:
            own = {**common, "DMLC_ROLE": role, "DMLC_NODE_HOST": self.hosts.address(host), **environment_of(host)}
            variables = [f"{name}={value}" for name, value in own.items()]
            command = [self.program, str(self.folder / "plan"), str(self.folder / "store")]
            self.start(self.hosts.command_at(host, ["env", *variables, *command]))
        self.wait_for_ends()
        outputs = [path.read_text() for path in (self.folder / "store").glob("worker*")]
        if len(outputs) != layout.workers:
            raise SystemExit(f"{len(outputs)} of {layout.workers} workers of {self.program} have measured\n{self.errors()}")
        return plans.records_of(outputs, layout)

    def check_end(self, process):
        if process.wait() != 0:
            raise SystemExit(f"{shlex.join(process.args)} failed ({process.returncode})\n{self.errors()}")


def run(hosts, program, plan, layout, environment_of=lambda host: {}):
    with Job(hosts, program, plan) as job:
        return job.run(layout, environment_of)


def run_ours(cluster, program, plan, layout):
    """The same over the nodes of a cluster."""
    def environment_of(host):
        return {"PHALANX_ADDRESS": f"unix:{cluster.socket(host)}", "PHALANX_LIBRARY": LIBPHALANX, "PHALANX_PS_TIMEOUT": 60}
    return run(cluster.hosts, program, plan, layout, environment_of)


def limits(hosts, sizes, warmup, runs):
    """The median seconds in which bare sockets carry each of these numbers of bytes from one host to another one."""
    # Their ranks listen at one port, so each has an address of its own.
    if hosts.count < 2 or isinstance(hosts, Loopback) or not sizes:
        return {}
    # They carry floats.
    lines = [f"pair bare {size // 4 * 4} 1 {warmup} {runs} 0 -" for size in sorted(sizes)]
    measured = launches.launch_ranks(hosts, launches.compile_program("sockets"), lines)
    return {size: summarize(record)["median_s"] for size, record in zip(sorted(sizes), measured)}


def with_limits(hosts, records, bytes_of, warmup, runs):
    """Adds shape_limit_s: what bare sockets need for bytes_of(record), measured now; 0 where that is 0."""
    needed = [bytes_of(record) for record in records]
    found = limits(hosts, set(needed) - {0}, warmup, runs)
    each = [found.get(size, 0) for size in needed]
    return [dict(record, limit_s=limit, shape_limit_s=limit) for record, limit in zip(records, each)]
