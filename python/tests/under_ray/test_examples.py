"""The programs of reinforcement learning and serving in examples/ray, in their small sizes, in the cluster of the other tests.

Each fails by itself if its weights or votes are not those of a serial run, or if the policy has not come to its score.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

_EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "ray"


@pytest.fixture
def record_of(ray_cluster):
    """Run a program in the cluster, and return the record that it prints last."""

    def run(program: str, *options: str) -> dict:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
        done = subprocess.run(
            [sys.executable, _EXAMPLES / program, "--address", ray_cluster.address, *options],
            capture_output=True,
            text=True,
            timeout=150,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("program", ["a3c.py", "impala.py"])
def test_a_policy_learns_by_the_updates_of_a_serial_run(record_of, program):
    record = record_of(program, "--workers=3", "--steps=40")
    assert record["steps"] == 40 and record["reached_after_s"] is not None and record["off_a_serial_run"] == 0


@pytest.mark.parametrize(("program", "form"), [("a3c.py", "flat"), ("impala.py", "trees")])
def test_emulated_weights_by_rays_own_store_are_those_of_a_serial_run(record_of, program, form):
    options = ("--transport=ray", "--ray-form", form, "--megabytes=2", "--gradient-seconds=0.01")
    record = record_of(program, "--workers=3", "--steps=8", *options)
    assert record["transport"] == "ray" and record["emulated"] and record["off_a_serial_run"] == 0


def test_an_ensemble_goes_on_without_a_killed_replica_and_takes_it_back(record_of):
    record = record_of("serving.py", "--workers=3", "--clients=1,2", "--requests=60", "--kill=1@20")
    assert record["wrong_or_failed"] == 0 and record["steps"] == 120
    assert record["kill"]["back_at_step"] is not None


def test_an_ensemble_answers_by_rays_own_store(record_of):
    record = record_of("serving.py", "--transport=ray", "--workers=3", "--clients=2", "--requests=20", "--megabytes=1")
    assert record["wrong_or_failed"] == 0 and record["p99_s"] >= record["p50_s"]
