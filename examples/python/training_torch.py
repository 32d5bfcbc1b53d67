"""Data-parallel training of a torch model, with the gradients of all members by Phalanx or by torch's Gloo.

`phalanx launch` starts the members, and `--transport` is all that differs between the two. The program runs both and
compares their losses and the time of a call. Then it runs Phalanx again with members that are killed as they make a
call: the others wait for the next life, which loads the state that its task has saved and makes this call again.
The losses are those of the run without deaths, bit by bit. (A Gloo group ends with its first member that dies.)
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import phalanx

torch: Any = importlib.import_module("torch")  # `import torch`, for type checkers without it
COMMAND = shutil.which("phalanx", path=os.path.dirname(sys.executable)) or "phalanx"
WORKERS = 4
STEPS = 30
# worker1 is killed in its fifth call, worker2 in its eleventh, and its next life in its third.
DEATHS = ("--fail=1@5", "--fail=2@11", "--fail=2@3")
AllReduce = Callable[[Any], None]  # the tensor becomes the mean of all members' tensors


def by_phalanx() -> tuple[int, AllReduce, Callable[[], object]]:
    """Join the job; return the rank, the function, and what to call at the end."""
    member = phalanx.join()
    group = member.group(on_loss="wait", timeout=60)

    def all_reduce(tensor: Any) -> None:
        group.allreduce(tensor, "mean")

    return member.rank, all_reduce, member.leave


def by_gloo(folder: pathlib.Path) -> tuple[int, AllReduce, Callable[[], object]]:
    distributed = torch.distributed
    rank = int(os.environ["PHALANX_TASK"].removeprefix("worker"))
    distributed.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=WORKERS)

    def all_reduce(tensor: Any) -> None:
        distributed.all_reduce(tensor)
        tensor /= WORKERS

    return rank, all_reduce, distributed.destroy_process_group


def train(transport: str, folder: pathlib.Path) -> None:
    """Make all steps, and write the losses and the median time of a call."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    linear, tanh = torch.nn.Linear, torch.nn.Tanh
    model = torch.nn.Sequential(linear(32, 256), tanh(), linear(256, 256), tanh(), linear(256, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    rank, all_reduce, leave = by_gloo(folder) if transport == "gloo" else by_phalanx()
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(1 + rank), dtype=torch.float64)
    y = torch.sin(x[:, :1]) + x[:, 1:2] * 0.5
    losses: list[float] = []
    times: list[float] = []
    saved = folder / f"state{rank}"
    if saved.exists():  # of an earlier life
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        losses = state["losses"]
    while len(losses) < STEPS:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        # One call for each step, so that the next life of a member goes on with the step of its state.
        gradients = [parameter.grad for parameter in model.parameters()]
        parts = torch.cat([loss.detach()[None], torch.nn.utils.parameters_to_vector(gradients)])
        begun = time.perf_counter()
        all_reduce(parts)
        times.append(time.perf_counter() - begun)
        losses.append(parts[0].item())
        torch.nn.utils.vector_to_parameters(parts[1:], gradients)
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}
        torch.save(state, f"{saved}.new")
        os.replace(f"{saved}.new", saved)
    leave()
    (folder / f"result{rank}").write_text(json.dumps({"losses": losses, "ms": statistics.median(times) * 1000}))


def launch(transport: str, *flags: str) -> tuple[list[float], float]:
    """Run all members; return their losses and the milliseconds of a call."""
    with tempfile.TemporaryDirectory(prefix="torch-", dir="/tmp") as folder:
        command = [COMMAND, "launch", f"-n{WORKERS}", f"--restarts={len(DEATHS)}", *flags, "--", sys.executable, __file__]
        ended = subprocess.run([*command, f"--transport={transport}", folder], stderr=subprocess.PIPE, text=True)
        if ended.returncode != 0:
            sys.exit(ended.stderr)
        results = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("result*"))]
    if len(results) != WORKERS or any(result["losses"] != results[0]["losses"] for result in results):
        sys.exit(f"{transport}: the members do not have the same losses")
    return results[0]["losses"], max(result["ms"] for result in results)


def main() -> int:
    ours, our_ms = launch("phalanx")
    theirs, their_ms = launch("gloo")
    troubled, _ = launch("phalanx", *DEATHS)
    most = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"{WORKERS} members, {STEPS} steps: loss {ours[0]:.4f} -> {ours[-1]:.4f}, with Gloo {theirs[-1]:.4f}")
    print(f"largest difference {most:.1e}; with {len(DEATHS)} deaths the same: {troubled == ours}")
    print(f"an allreduce: {our_ms:.2f} ms, with Gloo {their_ms:.2f} ms")
    return 0 if most < 1e-9 and troubled == ours and ours[-1] < ours[0] / 4 else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1].removeprefix("--transport="), pathlib.Path(sys.argv[2]))
    else:
        sys.exit(main())
