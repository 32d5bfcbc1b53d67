"""The programs of examples/ray, in their small sizes, in the cluster of the other tests.

Each fails by itself if its weights or votes are not those of a serial run, or if the policy has not come to its score. The first tests
are of what the programs compute, without Ray's cluster.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

import numpy as np
import pytest

import phalanx.ray

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


def test_one_wrong_float_or_one_that_lacks_is_no_sum(monkeypatch):
    monkeypatch.syspath_prepend(str(_EXAMPLES.parents[1]))
    from benchmarks.peer_programs import ray_tasks

    count = 3 * ray_tasks.PERIOD + 7
    whole = ray_tasks.values(1, count, 5) + ray_tasks.values(4, count, 5)
    assert ray_tasks.is_sum(whole, [1, 4], count, 5)
    assert not ray_tasks.is_sum(whole[:-1], [1, 4], count, 5) and not ray_tasks.is_sum(whole, [1, 4], count, 6)
    for place in (0, ray_tasks.PERIOD, count - 1):
        wrong = whole.copy()
        wrong[place] += 1
        assert not ray_tasks.is_sum(wrong, [1, 4], count, 5)


def test_a_kill_after_the_last_step_is_refused(examples, monkeypatch, capsys):
    import async_sgd

    monkeypatch.setattr(sys, "argv", ["async_sgd", "--steps=8", "--kill=1@8"])
    with pytest.raises(SystemExit):
        async_sgd.parsed()
    assert "the steps are 0 to 7" in capsys.readouterr().err


@pytest.fixture
def record_of(ray_cluster, examples, monkeypatch, capsys):
    """Run a program in this process, which is connected to the cluster, and return the record that it prints last."""
    monkeypatch.setattr(phalanx.ray, "shutdown", lambda: None)  # what a program ends with

    def run(program: str, *options: str) -> dict:
        monkeypatch.setattr(sys, "argv", [program, "--workers=3", *options])
        status, printed = importlib.import_module(program).main(), capsys.readouterr().out
        assert status == 0, printed
        return json.loads(printed.splitlines()[-1])

    return run


@pytest.mark.parametrize("transport", ["phalanx", "ray"])
def test_one_reduction_a_step_makes_the_weights_of_a_serial_run(record_of, transport):
    record = record_of("async_sgd", "--transport", transport, "--variant=one-reduce", "--steps=8", "--megabytes=1")
    assert (record["transport"], record["variant"], record["steps"], record["k"]) == (transport, "one-reduce", 8, 3)
    assert record["emulated"] and record["gradients_of_older_weights"] == 0
    # The loss is that of the network at the vector's beginning, also if the rest is emulated: at the start and after each step.
    curve = record["curve"]
    assert curve[-1][1] < curve[0][1] and [when for when, _ in curve] == sorted(when for when, _ in curve) and len(curve) == 9


def test_a_killed_worker_comes_back_and_the_run_is_that_of_a_serial_one(record_of):
    # Each step takes the gradients of all, so that the run cannot end without the worker.
    record = record_of("async_sgd", "--first=3", "--steps=11", "--gradient-seconds=0.05", "--megabytes=1", "--kill=1@10")
    kill = record["kill"]
    assert (kill["worker"], kill["step"]) == (1, 10) and kill["back_at_step"] >= 10 and kill["process_after"] != kill["process"]
    # The run goes on until three steps after the worker's return, and has waited for the new process in one of the two steps after the kill:
    # a gradient of the killed one may have been there already, for one step.
    after = record["step_seconds"][10:]
    assert 10 + len(after) == record["steps"] == kill["back_at_step"] + 4
    assert after.index(max(after)) <= min(1, kill["back_at_step"] - 10) and kill["after_s"] < kill["longest_s"] / 2


def test_trees_of_rays_own_store_add_up_the_same(record_of):
    record = record_of("async_sgd", "--transport=ray", "--ray-form=trees", "--first=3", "--steps=8", "--megabytes=1")
    assert (record["k"], record["steps"], record["ray_form"]) == (3, 8, "trees") and record["off_a_serial_run"] < 1e-3


@pytest.mark.parametrize("program", ["a3c", "impala"])
def test_a_policy_learns_by_the_updates_of_a_serial_run(record_of, program):
    record = record_of(program, "--steps=30")
    assert (record["k"], record["steps"]) == (2, 30)
    assert max(score for _, score in record["curve"]) >= 150 > 2 * record["curve"][0][1] and record["off_a_serial_run"] == 0


@pytest.mark.parametrize(("program", "form"), [("a3c", "flat"), ("impala", "trees")])
def test_emulated_weights_by_rays_own_store_are_those_of_a_serial_run(record_of, program, form):
    options = ("--transport=ray", "--ray-form", form, "--megabytes=2", "--gradient-seconds=0.01")
    record = record_of(program, "--steps=8", *options)
    assert (record["transport"], record["ray_form"], record["emulated"]) == ("ray", form, True)
    assert (record["k"], record["steps"], record["off_a_serial_run"]) == (2, 8, 0)


def test_an_ensemble_goes_on_without_a_killed_replica_and_takes_it_back(record_of):
    record = record_of("serving", "--clients=1,2", "--requests=20", "--kill=1@10")
    assert record["wrong_or_failed"] == 0
    # The others answer at once, and only a replica that has been restarted is asked again.
    kill = record["kill"]
    assert kill["back_at_step"] > 10 and kill["process_after"] != kill["process"] and kill["longest_s"] < 30
    assert record["steps"] == max(40, kill["back_at_step"] + 4)


def test_an_ensemble_answers_by_rays_own_store(record_of):
    record = record_of("serving", "--transport=ray", "--clients=2", "--requests=20", "--megabytes=1")
    assert (record["transport"], record["emulated"], record["megabytes"]) == ("ray", True, 1)
    assert (record["wrong_or_failed"], record["steps"]) == (0, 20) and [level["clients"] for level in record["levels"]] == [2]
