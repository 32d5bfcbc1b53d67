"""The programs of reinforcement learning and serving in examples/ray, in their small sizes, in the cluster of the other tests.

Each fails by itself if its weights or votes are not those of a serial run, or if the policy has not come to its score. The first tests
are of what the programs compute, without Ray's cluster.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

_EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "ray"


@pytest.fixture
def examples(monkeypatch):
    """Make the modules of the examples importable, and forget them afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(_EXAMPLES))
    yield
    for name in set(sys.modules) - before:
        if str(_EXAMPLES) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_gradient_of_a_policy_is_the_slope_of_its_loss(examples):
    import cartpole

    weights, random = cartpole.start().astype(np.float64), np.random.default_rng(0)
    played = cartpole.rollout(weights, (1, 2))
    targets, advantages = random.normal(0, 5, (cartpole.LIMIT, cartpole.POLES)), random.normal(0, 1, (cartpole.LIMIT, cartpole.POLES))
    slope = cartpole.gradient(weights, played, targets, advantages)
    for i in range(0, len(weights), 20):
        step = np.zeros(len(weights))
        step[i] = 1e-5
        up, down = (cartpole.loss(weights + way * step, played, targets, advantages) for way in (1, -1))
        assert slope[i] == pytest.approx((up - down) / 2e-5, abs=1e-9)


def test_v_trace_of_the_own_games_gives_their_discounted_rewards(examples):
    import a3c
    import cartpole
    import impala

    weights = cartpole.start()
    played = cartpole.rollout(weights, (1, 2))
    values = cartpole.forward(weights, played["states"])[2]
    targets, _ = impala.v_trace(weights, played)
    np.testing.assert_allclose(targets, a3c.returns_of(played, values), rtol=1e-12)


def test_gradients_add_up_to_the_same_in_every_order(examples):
    import a3c
    import cartpole

    model = a3c.A3C(seed=0)
    slopes = [model.work(cartpole.start(), worker, 0) for worker in range(5)]
    assert np.array_equal(model.joined(slopes), model.joined(slopes[::-1]))


def test_a_vote_is_the_most_frequent_answer_and_the_smallest_of_equals(examples):
    import digits

    answers = [np.array(each, np.uint8) for each in ([1, 7, 9], [1, 3, 9], [2, 3, 4], [5, 7, 9])]
    assert digits.vote(answers).tolist() == [1, 3, 9]


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
    record = record_of("serving.py", "--workers=3", "--clients=1,2", "--requests=30", "--kill=1@10")
    assert record["wrong_or_failed"] == 0 and record["steps"] >= 60
    assert record["kill"]["back_at_step"] is not None


def test_an_ensemble_answers_by_rays_own_store(record_of):
    record = record_of("serving.py", "--transport=ray", "--workers=3", "--clients=2", "--requests=20", "--megabytes=1")
    assert record["wrong_or_failed"] == 0 and record["p99_s"] >= record["p50_s"]
