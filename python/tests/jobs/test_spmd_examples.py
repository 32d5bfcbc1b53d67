"""The examples of sessions in Python, under `phalanx launch`, with kills and without: the same bits, and what
scikit-learn finds."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from programs_support import ROOT

import phalanx
from phalanx import _native

FOLDER = ROOT / "examples" / "spmd"


def launch(world, example, *arguments, deaths=()):
    """Run an example with a kill for each (rank, call), and return the sorted lines of its output."""
    flags = [f"-n{world}", f"--restarts={len(deaths)}", *(f"--fail={rank}@{call}" for rank, call in deaths)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    # The ranks share the cores, and the threads of a matrix product would wait for each other.
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    command = [_native.EXECUTABLE, "launch", *flags, "--", sys.executable, str(FOLDER / example), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr.count("ended by signal 9") == len(deaths), ended.stderr
    assert f"`{example}`" in (FOLDER / "README.md").read_text()
    return sorted(ended.stdout.splitlines())


def numbers(lines):
    """Return the numbers in the one line of output of rank 0, without the number of the version."""
    (line,) = lines
    return np.array([float.fromhex(word) for word in line.split()[2:]])


def test_basic_prints_what_its_readme_says():
    """The same as the example in C++."""
    with open(FOLDER / "README.md") as readme:
        expected = sorted(line.strip() for line in readme if line.startswith("    [worker"))
    assert launch(3, "basic.py", deaths=[(1, 4)]) == expected
    assert launch(3, "basic.py") == [line for line in expected if " life " not in line]


def test_broadcast():
    expected = [f"[worker{rank}] rank {rank} has received 3 broadcasts" for rank in range(3)]
    assert launch(3, "broadcast.py") == expected
    # In the broadcast before load, in that of its own round, and twice.
    assert launch(3, "broadcast.py", deaths=[(0, 3), (1, 8), (2, 5), (2, 2)]) == expected


def test_lazy_allreduce():
    def expected(dead=None):
        lines = [(rank, 1, [2]) if rank == dead else (rank, 0, [0, 1, 2]) for rank in range(3)]
        return [
            f"[worker{r}] rank {r}, life {life}: prepared calls {calls}, the last sum is 300"
            for r, life, calls in lines
        ]

    assert launch(3, "lazy_allreduce.py") == expected()
    assert launch(3, "lazy_allreduce.py", deaths=[(1, 4)]) == expected(1)


def test_kmeans_finds_the_colours_of_a_photograph():
    cluster = pytest.importorskip("sklearn.cluster")
    pytest.importorskip("PIL")
    from sklearn.datasets import load_sample_image

    calm = launch(4, "kmeans.py")
    # In the broadcast before load, in the first call after it, between checkpoints, and twice.
    assert launch(4, "kmeans.py", deaths=[(0, 3), (1, 4), (2, 10), (2, 5), (3, 14)]) == calm
    inertia, *centers = numbers(calm)
    pixels = load_sample_image("china.jpg").reshape(-1, 3) / 255.0
    assert inertia <= 1.01 * cluster.KMeans(8, n_init=3, random_state=0).fit(pixels).inertia_
    squares = sum((pixels[:, i, None] - np.reshape(centers, (8, 3))[:, i]) ** 2 for i in range(3))
    assert inertia == pytest.approx(squares.min(1).sum(), rel=1e-3)


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_lbfgs_finds_the_weights_of_logistic_regression(name):
    linear_model = pytest.importorskip("sklearn.linear_model")
    from sklearn import datasets

    calm = launch(4, "lbfgs.py", name)
    assert launch(4, "lbfgs.py", name, deaths=[(0, 2), (1, 9), (2, 30), (2, 5)]) == calm
    data, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    deviation = data.std(0)
    deviation[deviation == 0] = 1
    model = linear_model.LogisticRegression(tol=1e-8, max_iter=10_000).fit((data - data.mean(0)) / deviation, target)
    expected = np.hstack([model.coef_, model.intercept_[:, None]])
    assert np.abs(numbers(calm).reshape(expected.shape) - expected).max() < 1e-3
