"""Logistic regression: each worker pushes the gradient of a part of the examples, and the servers take the steps.

    phalanx launch --servers 2 --workers 4 --restarts 20 -- python3 logistic.py --data digits --sync ssp

In each clock the examples are dealt out again, so that a worker that is ahead, or behind, does not know its own part
alone. With --sync=bsp the last line has the same bits in each run, also when servers and workers die, and with
--serial=4, which needs no cluster. The data are scikit-learn's (pip install scikit-learn).

    python3 logistic.py --data digits --export digits.txt      # for the same program in C++, logistic.cc
"""

import runs  # isort: skip  (before NumPy)
import numpy as np

FEATURES = {"breast_cancer": 30, "digits": 64}
CLASSES = {"breast_cancer": 2, "digits": 10}
PENALTY = 1e-3
RATE = 0.5


class Batch:
    """Some of the examples: the gradient of the mean loss of all `count`, as far as these have a part in it."""

    keys = None

    def __init__(self, examples, answers, count):
        self.examples, self.answers, self.count = examples, answers, count

    def push(self, weights):
        errors = np.exp(logarithms(self.examples, weights))
        errors[np.arange(len(errors)), self.answers] -= 1
        penalty = PENALTY * len(errors) * weights
        penalty[-1] = 0  # not for the constant
        return None, (self.examples.T @ errors + penalty) / self.count


class Logistic:
    """A column of weights for each class. Every fifth example is held out."""

    def __init__(self, data, target):
        held = np.arange(len(data)) % 5 == 4
        mean, deviation = data[~held].mean(0), data[~held].std(0)
        deviation[deviation == 0] = 1
        examples = np.hstack([(data - mean) / deviation, np.ones((len(data), 1))])
        self.examples, self.answers = examples[~held], target[~held]
        self.others, self.their_answers = examples[held], target[held]

    def batch(self, rank, workers, clock):
        dealt = np.random.default_rng(clock).permutation(len(self.examples))[rank::workers]
        return Batch(self.examples[dealt], self.answers[dealt], len(self.examples))

    def reported(self):
        return None

    def report(self, weights):
        logs = logarithms(self.examples, weights)
        loss = -logs[np.arange(len(logs)), self.answers].mean() + PENALTY / 2 * (weights[:-1] ** 2).sum()
        right = (self.others @ weights).argmax(1) == self.their_answers
        return f"accuracy {right.mean():.4f}, loss {loss:.6f}"


def logarithms(examples, weights):
    """Return the logarithm of each class's probability."""
    scores = examples @ weights
    scores -= scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def load(name):
    from sklearn import datasets

    return Logistic(*getattr(datasets, f"load_{name}")(return_X_y=True))


def export(model, path):
    """Write the examples as text: a line of sizes, and for each example its class and its features, exactly."""
    with open(path, "w") as file:
        kinds = [(model.examples, model.answers), (model.others, model.their_answers)]
        print(*(len(answers) for _, answers in kinds), model.examples.shape[1], model.answers.max() + 1, file=file)
        for examples, answers in kinds:
            for example, answer in zip(examples, answers):
                print(answer, *(float(value).hex() for value in example), file=file)


def main():
    flags = runs.parser(__doc__, clocks=200)
    flags.add_argument("--data", choices=list(FEATURES), default="breast_cancer")
    flags.add_argument("--export", metavar="FILE", help="write the examples to this file, and end")
    args = flags.parse_args()
    if args.export:
        export(load(args.data), args.export)
        return
    shape = {"keys": FEATURES[args.data] + 1, "width": CLASSES[args.data], "dtype": "f64"}
    runs.run(args, {"name": "weights", **shape, "update": "sgd", "rate": RATE}, lambda _: load(args.data))


if __name__ == "__main__":
    main()
