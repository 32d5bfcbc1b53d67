"""RLlib's APPO on CartPole, whose weights go to the env runners by Phalanx or by Ray's own store.

    python examples/ray/rllib_appo.py                          # a small policy on this machine, by Phalanx
    python examples/ray/rllib_appo.py --transport ray          # the same by Ray's store

It needs RLlib and torch: pip install "ray[rllib]" torch. What is Phalanx's in it is one call, in `SharingLearner.get_state`: RLlib puts
what that returns into Ray's store, and each env runner gets it from there before it samples. The side of the runners is RLlib's own.

The last line of the output is a record in JSON, with RLlib's own figures: how many updates the weights were behind that had sampled a
batch which is learned from (`diff_num_grad_updates_vs_sampler_policy`), steps of the environment, and the seconds in which a runner
gets and loads weights. The first counts updates, not seconds: where every update waits for new samples, it is the number of fragments
that are on their way, however fast they are. So --update-seconds sets the pace of the learner, EMULATED, and --replays lets it
learn from a batch several times; --step-seconds is the time of a step of an EMULATED slow environment.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from typing import Any

import gymnasium
import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune import register_env

import phalanx.ray

LAG = "diff_num_grad_updates_vs_sampler_policy"


class PacedLearner(APPOTorchLearner):
    """RLlib's learner, which keeps the lag of each update; an update takes at least as long as the configuration says."""

    def build(self) -> None:
        self.lags: list[float] = []
        super().build()

    def _compute_off_policyness(self, batch: Any) -> None:
        # RLlib's metric. Its results have one update for each batch that comes, which is not each update that is made.
        super()._compute_off_policyness(batch)
        self.lags.append(float(self.metrics.peek(("default_policy", LAG))))

    def after_gradient_based_update(self, **kwargs: Any) -> None:
        super().after_gradient_based_update(**kwargs)
        now = time.monotonic()
        self._next = max(now, getattr(self, "_next", now) + self.config.learner_config_dict["update_seconds"])
        time.sleep(self._next - now)


class SharingLearner(PacedLearner):
    """A learner whose weights travel by Phalanx."""

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return phalanx.ray.share(super().get_state(*args, **kwargs))


class TimedRunner(SingleAgentEnvRunner):
    """RLlib's env runner, which logs how long it takes to get and load weights."""

    def set_state(self, state: dict[str, Any]) -> None:
        began = time.perf_counter()
        super().set_state(state)
        if "rl_module" in state:
            self.metrics.log_value("weights_sync_s", time.perf_counter() - began, window=1)


class Slow(gymnasium.Wrapper):
    """An environment whose steps take a stated time, in which nothing is computed."""

    def __init__(self, environment: gymnasium.Env, seconds: float) -> None:
        super().__init__(environment)
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)
        return self.env.step(action)


def configured(arguments: argparse.Namespace) -> APPOConfig:
    """Return the run's configuration: the same for both ways, but for the learner's class."""
    placed: dict[str, Any] = {}
    if "runner" in ray.cluster_resources():  # benchmarks/rllib marks hosts so
        placed["custom_resources_per_env_runner"] = {"runner": 1}
    return (
        APPOConfig()
        .environment("slow_cartpole")
        .env_runners(
            env_runner_cls=TimedRunner,
            num_env_runners=arguments.workers,
            num_cpus_per_env_runner=0,
            rollout_fragment_length=arguments.fragment,
            create_local_env_runner=False,
            **placed,
        )
        .learners(
            learner_class=SharingLearner if arguments.transport == "phalanx" else PacedLearner,
            num_learners=0,
            learner_config_dict={"update_seconds": arguments.update_seconds},
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[arguments.hidden] * 2, vf_share_layers=True))
        .training(
            train_batch_size_per_learner=arguments.batch,
            circular_buffer_num_batches=arguments.buffer,
            circular_buffer_iterations_per_batch=arguments.replays,
            timeout_s_sampler_manager=0.05,  # by default the driver asks for samples without a pause, and takes a core
            lr=1e-4,
        )
        .resources(num_cpus_for_main_process=0)
        .reporting(min_time_s_per_iteration=1)
        .debugging(log_level="ERROR", seed=arguments.seed)
    )


def found(results: list[dict[str, Any]], *path: str) -> list[float]:
    """Return a metric of all iterations that have it; RLlib has NaN where there was nothing to measure."""
    values = []
    for each in results:
        for part in path:
            each = each.get(part, {})
        if isinstance(each, (int, float)) and not math.isnan(each):
            values.append(float(each))
    return values


def growth(results: list[dict[str, Any]], *path: str) -> float:
    values = found(results, *path)
    return values[-1] - values[0] if values else 0.0


def record(
    arguments: argparse.Namespace, results: list[dict[str, Any]], lags: list[float], seconds: float
) -> dict[str, Any]:
    """Return the record of a run: of the results of its iterations, the first from just before it, and the lags of its updates."""
    syncs = found(results[1:], "env_runners", "weights_sync_s")
    return {
        "program": "rllib_appo",
        **{key: vars(arguments)[key] for key in ("transport", "workers", "hidden", "fragment", "batch", "buffer", "replays", "seed")},
        "emulated": {"step_seconds": arguments.step_seconds, "update_seconds": arguments.update_seconds},
        "megabytes": round(4 * arguments.hidden * (arguments.hidden + 9) / (1 << 20), 2),  # of the runners' weights
        "seconds": round(seconds, 1),
        LAG: round(statistics.mean(lags), 2) if lags else None,
        f"{LAG}_quartiles": [round(each, 2) for each in statistics.quantiles(lags)] if len(lags) > 1 else None,
        "env_steps_per_s": round(growth(results, "env_runners", "num_env_steps_sampled_lifetime") / seconds, 1),
        "updates_per_s": round(len(lags) / seconds, 2),
        "weights_sync_s": round(statistics.mean(syncs), 3) if syncs else None,
        "weights_sync_s_quartiles": [round(each, 3) for each in statistics.quantiles(syncs)] if len(syncs) > 1 else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("phalanx", "ray"), default="phalanx")
    parser.add_argument("--address", default="local", help="of Ray's cluster (a cluster of this machine alone, which ends with the program)")
    parser.add_argument("--node-address", help="of this host, where Ray cannot find it itself: that of ray start --node-ip-address")
    parser.add_argument("--workers", type=int, default=2, help="env runners")
    parser.add_argument("--hidden", type=int, default=256, help="width of the two layers of the policy; that of 64 MiB has 4096")
    parser.add_argument("--fragment", type=int, default=20, help="steps of a runner between two looks for new weights")
    parser.add_argument("--batch", type=int, default=100, help="steps of an update")
    parser.add_argument("--buffer", type=int, default=8, help="batches that the learner draws from")
    parser.add_argument("--replays", type=int, default=2, help="how often it learns from a batch at most")
    parser.add_argument("--step-seconds", type=float, default=0, help="of an emulated step of the environment")
    parser.add_argument("--update-seconds", type=float, default=0, help="that an update takes at least")
    parser.add_argument("--seconds", type=float, default=30, help="of the measurement")
    parser.add_argument("--warmup", type=float, default=10, help="seconds before it, after the first update")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    more = {"_node_ip_address": arguments.node_address} if arguments.node_address else {}
    phalanx.ray.init(arguments.address, log_to_driver=False, **more)
    register_env("slow_cartpole", lambda _: Slow(gymnasium.make("CartPole-v1"), arguments.step_seconds))
    algorithm = configured(arguments).build_algo()
    lags = algorithm.learner_group._learner.lags
    while not lags:
        algorithm.train()
    for seconds in (arguments.warmup, arguments.seconds):
        results = [algorithm.train()]  # the counters from which the others grow
        began, before = time.monotonic(), len(lags)
        while time.monotonic() < began + seconds:
            results.append(algorithm.train())
    made = record(arguments, results, lags[before:], time.monotonic() - began)
    algorithm.stop()
    phalanx.ray.shutdown()
    print(json.dumps(made))
    return 0 if made[LAG] is not None and made["weights_sync_s"] is not None else 1


if __name__ == "__main__":
    sys.exit(main())
