"""examples/ray/async_sgd.py in small sizes, in the cluster of the other tests: its weights are those of a serial run, or it fails."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

_PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "examples" / "ray" / "async_sgd.py"


@pytest.fixture
def record_of(ray_cluster):
    """Run the program in the cluster, and return the record that it prints last."""

    def run(*options: str) -> dict:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
        done = subprocess.run(
            [sys.executable, _PROGRAM, "--address", ray_cluster.address, "--workers=3", *options],
            capture_output=True,
            text=True,
            timeout=150,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("transport", ["phalanx", "ray"])
def test_one_reduction_a_step_makes_the_weights_of_a_serial_run(record_of, transport):
    record = record_of("--transport", transport, "--variant=one-reduce", "--steps=10", "--megabytes=1")
    assert (record["transport"], record["variant"], record["steps"], record["k"]) == (transport, "one-reduce", 10, 3)
    assert record["emulated"] and record["gradients_of_older_weights"] == 0
    # The loss is that of the network at the vector's beginning, also if the rest is emulated.
    assert record["curve"][-1][1] < record["curve"][0][1]


def test_a_killed_worker_comes_back_and_the_run_is_that_of_a_serial_one(record_of):
    record = record_of("--steps=30", "--gradient-seconds=0.05", "--megabytes=1", "--kill=1@10")
    kill = record["kill"]
    assert record["right"] and (kill["worker"], kill["step"]) == (1, 10) and len(record["step_seconds"]) == 30
    assert kill["before_s"] > 0 and kill["longest_s"] >= kill["during_s"] and kill["steps_lost"] >= 0


def test_trees_of_rays_own_store_add_up_the_same(record_of):
    record = record_of("--transport=ray", "--ray-form=trees", "--first=3", "--steps=8", "--megabytes=1")
    assert record["right"] and record["ray_form"] == "trees"
