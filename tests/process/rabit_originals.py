"""Rabit's own programs and XGBoost over Phalanx: results with deaths are those without. By hand: scripts/xgboost-check.

usage: python3 -m tests.process.rabit_originals FOLDER [TEST ...], the folder that scripts/xgboost-check has made
"""

import gzip
import json
import os
import pathlib
import re
import sys
import unittest
import zipfile

from tests.process import rabit_test
from tests.process.harness import OK
from tests.process.launches import LaunchCase
from tests.process.rabit_test import DEATH, DEATHS, DIE_HARD, DIE_SAME, LOCAL

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve() if __name__ == "__main__" else None
RANK = os.path.abspath("tests/process/xgboost_rank.py")
WORLD, COUNT, ITERATIONS = 10, 10_000, 3
ROUNDS = 10
# Ten Pythons start on a few cores.
TRAINING_DEADLINE_S = 600
# Rank, version, call, life: a tree takes two versions, so these die while trees 0, 2, 4, 6 and 8 grow.
XGBOOST_DEATHS = ("1,0,5,0", "3,4,7,0", "5,8,3,0", "7,12,2,0", "9,16,4,0")
# With another base_score than 0, margins that a rank computes again after its death differ in their last bits from
# those that it has added up tree by tree.
BASE = {"max_depth": 4, "nthread": 1, "silent": 1, "base_score": 0}
TRAININGS = {
    "breast_cancer": {**BASE, "objective": "binary:logistic", "base_score": 0.5},  # a margin of 0
    "digits": {**BASE, "objective": "multi:softmax", "num_class": 10},
}



def rows(dataset):
    """Return a data set of scikit-learn in the format of LIBSVM."""
    (wheel,) = FOLDER.glob("scikit_learn-*.whl")
    name = f"sklearn/datasets/data/{dataset}.csv"
    with zipfile.ZipFile(wheel) as files:
        packed = f"{name}.gz" in files.namelist()
        text = gzip.decompress(files.read(f"{name}.gz")) if packed else files.read(name)
    # The first line of some is no row: it has names.
    lines = [line.split(",") for line in text.decode().splitlines()[0 if packed else 1 :]]
    return "".join(
        " ".join([f"{float(line[-1]):g}", *(f"{i}:{float(value):g}" for i, value in enumerate(line[:-1]))]) + "\n"
        for line in lines
    )


class OriginalsTest(LaunchCase):
    def program(self, name, *arguments, world=WORLD, deaths=()):
        """Launch a program whose ranks die; return its output."""
        mocks = [f"mock={each}" for each in deaths]
        out, err = self.launch(f"-n{world}", "--restarts=20", "--unfired=warn", "--", str(FOLDER / "programs" / name),
                               *arguments, *mocks, expect=OK)
        made = [",".join(numbers) for numbers in DEATH.findall(err)]
        self.assertEqual(sorted(made), sorted(rabit_test.RabitTest.possible(deaths)), err)
        return out

    def test_the_guide(self):
        out = self.program("basic", world=2)
        self.assertEqual(out.count("after-allreduce-max: a={1, 2, 3}"), 2)
        self.assertEqual(out.count("after-allreduce-sum: a={2, 4, 6}"), 2)
        self.assertEqual(self.program("broadcast", world=3).count('after-broadcast: s="hello world"'), 3)
        out = self.program("lazy_allreduce", world=2, deaths=["0,0,1,0"])
        self.assertEqual(out.count("run prepare function"), 2)
        self.assertEqual(out.count("after-allreduce-max: a={2, 4, 6}"), 2)

    def test_recovery(self):
        for name, deaths in (
            ("model_recover", DEATHS), ("model_recover", DIE_SAME), ("model_recover", DIE_HARD),
            ("local_recover", LOCAL), ("lazy_recover", DIE_SAME), ("lazy_recover", DIE_HARD),
        ):
            with self.subTest(name, deaths=deaths):
                # The programs check every element themselves.
                out = self.program(name, str(COUNT), deaths=deaths)
                passed = re.findall(r"\[(\d+)\] !!!Check[Pp]oint pass, iter=(\d+)", out)
                self.assertEqual(set(passed), {(str(r), str(i)) for r in range(WORLD) for i in range(ITERATIONS)})

    def test_a_ring(self):
        self.program("model_recover", str(COUNT), "rabit_reduce_ring_mincount=10")

    def test_speed(self):
        out = self.program("speed_test", "10000", "100", world=4)
        self.assertEqual(len(re.findall(r"^(?:max|sum|bcast)_tdiff-speed: \S+ MB/sec$", out, re.MULTILINE)), 3, out)
        print("\n" + out)

    def train(self, dataset, output, deaths=()):
        """Train with ranks that die; return the model file and the error of the model."""
        path = self.cluster.path(output)
        command = [str(FOLDER / "venv" / "bin" / "python"), RANK, str(FOLDER / "xgboost-0.90"), self.cluster.path(dataset),
                   path, str(ROUNDS), json.dumps(TRAININGS[dataset])]
        launch = self.begin(f"-n{WORLD}", f"--restarts={len(deaths)}", "--", *command, *(f"mock={each}" for each in deaths))
        out, err = launch.communicate(timeout=TRAINING_DEADLINE_S)
        self.assertEqual(launch.returncode, OK, (out, err))
        self.assertEqual(sorted(",".join(numbers) for numbers in DEATH.findall(err)), sorted(deaths), err)
        return pathlib.Path(path).read_bytes(), float(re.search(r"^model .*error:(\S+)$", out, re.MULTILINE)[1])

    def test_xgboost(self):
        for dataset in TRAININGS:
            with self.subTest(dataset):
                pathlib.Path(self.cluster.path(dataset)).write_text(rows(dataset))
                calm, error = self.train(dataset, "calm")
                model, _ = self.train(dataset, "deaths", XGBOOST_DEATHS)
                self.assertEqual(model, calm)
                self.assertLess(error, 0.05)
                print(f"\n{dataset}: {len(calm)} bytes, error {error}, equal after {len(XGBOOST_DEATHS)} deaths")


if __name__ == "__main__":
    unittest.main()
