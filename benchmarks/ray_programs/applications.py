"""Runs programs of examples/ray in one Ray cluster on emulated hosts: each trial once in every way, in turn.

    applications.py --world 8 --hosts 10.77.0.1,... --plan PLAN --output RECORDS

A line of the plan is a step of benchmarks/ray_applications.py as JSON. The first host has the driver, each of the others a worker.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks import ray_applications  # noqa: E402
from benchmarks.peer_programs import ray_tasks  # noqa: E402

# A program that takes longer is stuck: it has a few steps of a few seconds.
PROGRAM_TIMEOUT_S = 240


def run_program(command, options, address):
    """Returns the record that the program prints at the end."""
    program = [sys.executable, str(ROOT / "examples/ray" / command[0]), *command[1:], *options,
               f"--address={address}:6379", f"--node-address={address}"]
    try:
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, timeout=PROGRAM_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{' '.join(program)} has not ended within {PROGRAM_TIMEOUT_S} s") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode not in (0, 1) or not lines:
        raise SystemExit(f"{' '.join(program)} ended with {done.returncode}, and printed {lines[-1:]}")
    return json.loads(lines[-1])


def run_step(step, address):
    """Returns a record for each way. Each way comes first in turn."""
    trials = {way: [] for way in step["ways"]}
    ways = list(step["ways"])
    for number in range(step["runs"]):
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            trials[way].append(run_program(step["command"], step["ways"][way], address))
            print(f"{step['op']} {step['kill']} {way} {1 / trials[way][-1]['rate']:.3f} s", file=sys.stderr, flush=True)
    return [ray_applications.record_of(step, way, trials[way]) for way in ways]


def main():
    arguments = ray_tasks.parsed(__doc__)
    wait_until_joined(arguments.first, arguments.world)
    measured = (record for line in arguments.steps for record in run_step(json.loads(line), arguments.first))
    sys.exit(ray_tasks.write(arguments, measured))


def wait_until_joined(address, world):
    import ray  # only here: the programs are drivers of their own

    ray.init(f"{address}:6379", _node_ip_address=address, log_to_driver=False, logging_level="error")
    ray_tasks.wait_for_hosts(world)
    ray.shutdown()


if __name__ == "__main__":
    main()
