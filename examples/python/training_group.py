"""Data-parallel training by a group whose members die and come back: the losses are those of a run without deaths.

`phalanx launch -n 4 --restarts 4` starts the members. In every round all make one call, an allreduce of one
array. Usually it has their gradients. If a member was missing, or came back without a state, the next round
passes the state on: the first member that has it gives it, the others give zeros, and the sum is the state. All
members decide by the sum alone what comes next, so it does not matter in which round a member dies or returns.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np

import phalanx

COMMAND = shutil.which("phalanx", path=os.path.dirname(sys.executable)) or "phalanx"
WORKERS = 4
STEPS = 30
SIZES = (8 * 16, 16, 16, 1)  # a network with one hidden layer
PARAMETERS = sum(SIZES)
# The state: the parameters, and the loss of each step.
STATE = PARAMETERS + STEPS
# The members that die, by life and step: "before" or "in" the call.
DEATHS = {(1, 0, 5): "in", (2, 0, 11): "before", (1, 1, 12): "before", (0, 0, 20): "in"}


def data_of(rank: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1 + rank)
    x = rng.normal(size=(64, 8))
    return x, np.sin(x[:, 0]) + x[:, 1] * 0.5


def first_state() -> np.ndarray:
    return np.concatenate([np.random.default_rng(0).normal(0, 0.3, PARAMETERS), np.zeros(STEPS)])


def loss_and_gradient(parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    w1, b1, w2, b2 = np.split(parameters, np.cumsum(SIZES)[:-1])
    hidden = np.tanh(x @ w1.reshape(8, 16) + b1)
    error = hidden @ w2 + b2 - y
    slope = error * (2 / len(x))
    below = np.outer(slope, w2) * (1 - hidden**2)
    parts = [(x.T @ below).ravel(), below.sum(axis=0), hidden.T @ slope, slope.sum(keepdims=True)]
    return float(np.mean(error**2)), np.concatenate(parts)


def train(deaths: bool) -> tuple[str, dict[str, object]]:
    """Join the job, make all steps, and return this member's task, and its life and losses."""
    with phalanx.join() as member:
        group = member.group(on_loss="exclude", timeout=60)
        x, y = data_of(member.rank)
        state = first_state() if member.life == 0 else None  # a member that comes back has none
        step, giver = 0, -1  # the rank that gives its state in the next round; -1: gradients are next
        # What all members have together: gradients and losses, or a state; the step of a given state, plus 1;
        # and a 1 for each member that has a state.
        total = np.zeros(STATE + 1 + WORKERS)
        while step < STEPS:
            total[:] = 0
            if state is not None:
                total[STATE + 1 + member.rank] = 1
                if giver == member.rank:
                    total[:STATE], total[STATE] = state, step + 1
                elif giver < 0:
                    total[PARAMETERS + step], total[:PARAMETERS] = loss_and_gradient(state[:PARAMETERS], x, y)
            if deaths and giver < 0 and (member.rank, member.life, step) in DEATHS:
                if DEATHS[member.rank, member.life, step] == "in":
                    group.allreduce(total, wait=False)
                os.kill(os.getpid(), signal.SIGKILL)
            group.allreduce(total)
            having = np.flatnonzero(total[STATE + 1 :])
            if total[STATE] > 0:  # a state was given
                state, step, giver = total[:STATE].copy(), int(total[STATE]) - 1, -1
            elif len(having) == WORKERS and state is not None:
                state[:PARAMETERS] -= 0.1 / WORKERS * total[:PARAMETERS]
                state[PARAMETERS + step] = total[PARAMETERS + step] / WORKERS
                step += 1
            elif len(having):  # these gradients do not count
                member.wait_world(timeout=60)
                giver = int(having[0])
            else:
                state, step, giver = first_state(), 0, -1
        assert state is not None
        return member.task, {"life": member.life, "losses": list(state[PARAMETERS:])}


def launch(deaths: bool) -> tuple[list[list[float]], list[int]]:
    """Run all members; return the losses that each has seen in the end, and its life."""
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as folder:
        command = [COMMAND, "launch", f"-n{WORKERS}", f"--restarts={len(DEATHS)}", "--"]
        ended = subprocess.run(
            [*command, sys.executable, __file__, folder, str(int(deaths))], stderr=subprocess.PIPE, text=True
        )
        if ended.returncode != 0:
            sys.exit(ended.stderr)
        results = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).iterdir())]
    return [result["losses"] for result in results], [result["life"] for result in results]


def main() -> int:
    calm, lives = launch(deaths=False)
    troubled, later = launch(deaths=True)
    print(f"{WORKERS} members, {STEPS} steps: loss {calm[0][0]:.4f} -> {calm[0][-1]:.4f}")
    print(f"lives {lives}, then {later}; the losses are the same: {calm == troubled}")
    good = lives == [0] * WORKERS and later == [1, 2, 1, 0] and len({str(each) for each in calm}) == 1
    return 0 if good and calm == troubled and calm[0][-1] < calm[0][0] / 4 else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        task, result = train(sys.argv[2] == "1")
        pathlib.Path(sys.argv[1], task).write_text(json.dumps(result))
    else:
        sys.exit(main())
