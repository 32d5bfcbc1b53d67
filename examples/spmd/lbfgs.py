"""Logistic regression by L-BFGS: each rank has a part of the examples, and all have the same weights.

    phalanx launch -n 4 --restarts 8 -- python lbfgs.py digits          # or breast_cancer

The loss and its gradient are sums over all examples, so each evaluation is one allreduce; all else is computed by
every rank, from the same bits. The model is the state of the search: a rank that dies goes on from its last
checkpoint, and the weights that are printed have the same bits as in a run without deaths. The data are
scikit-learn's (pip install scikit-learn), and so is the problem: its `LogisticRegression` finds the same weights.
"""

import sys

import numpy as np
from sklearn import datasets

import phalanx.spmd

REMEMBERED = 10  # pairs of steps and changes of the gradient
TOLERANCE = 1e-5  # of the gradient
MOST_ITERATIONS = 500


class Problem:
    """The loss of this rank's examples: a row of weights for each class, or one row for two classes."""

    def __init__(self, session, data, target):
        examples, self.answers = data[session.rank :: session.world], target[session.rank :: session.world]
        # The mean and the deviation of each feature are those of all ranks' examples.
        moments = np.stack([np.ones(data.shape[1]), examples.sum(0), (examples**2).sum(0)])
        moments[0] *= len(examples)
        count, total, squares = session.allreduce(moments)
        mean = total / count
        deviation = np.sqrt(squares / count - mean**2)
        deviation[deviation == 0] = 1
        self.examples = np.hstack([(examples - mean) / deviation, np.ones((len(examples), 1))])
        self.classes = int(target.max()) + 1
        self.shape = (self.classes if self.classes > 2 else 1, self.examples.shape[1])
        self.first = session.rank == 0

    def evaluate(self, weights):
        """Return this rank's part of the loss, and of its gradient, as one vector."""
        rows = weights.reshape(self.shape)
        scores = self.examples @ rows.T
        if self.classes == 2:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        loss = -logs[np.arange(len(logs)), self.answers].sum()
        errors = np.exp(logs)
        errors[np.arange(len(logs)), self.answers] -= 1
        gradient = errors[:, self.classes - self.shape[0] if self.classes == 2 else 0 :].T @ self.examples
        if self.first:  # The penalty counts once, and not for the constant.
            loss += 0.5 * (rows[:, :-1] ** 2).sum()
            gradient[:, :-1] += rows[:, :-1]
        return np.concatenate([[loss], gradient.ravel()])


def direction(gradient, steps, changes):
    """Return the direction of the search: the two loops of L-BFGS."""
    result, factors = -gradient, []
    for step, change in zip(reversed(steps), reversed(changes)):
        factors.append(step @ result / (step @ change))
        result = result - factors[-1] * change
    if steps:
        result = result * (steps[-1] @ changes[-1] / (changes[-1] @ changes[-1]))
    for step, change in zip(steps, changes):
        result = result + (factors.pop() - change @ result / (step @ change)) * step
    return result


def search(session, problem):
    """Return the weights with the least loss, from the last checkpoint on."""

    def evaluated(weights):
        size = problem.shape[0] * problem.shape[1] + 1
        total = session.allreduce(prepare=lambda: problem.evaluate(weights), shape=size, dtype="f8")
        return total[0], total[1:]

    version, model = session.load()
    if version == 0:
        weights = np.zeros(problem.shape[0] * problem.shape[1])
        model = (weights, *evaluated(weights), [], [])
    while abs(model[2]).max() > TOLERANCE and session.version < MOST_ITERATIONS:
        weights, loss, gradient, steps, changes = model
        towards = direction(gradient, steps, changes)
        length = 1.0 if steps else 1 / np.linalg.norm(gradient)
        while True:
            step = length * towards
            loss_there, gradient_there = evaluated(weights + step)
            if loss_there <= loss + 1e-4 * (step @ gradient) or length < 1e-10:
                break
            length /= 2
        change = gradient_there - gradient
        if step @ change > 0:
            steps, changes = [*steps, step][-REMEMBERED:], [*changes, change][-REMEMBERED:]
        model = (weights + step, loss_there, gradient_there, steps, changes)
        session.checkpoint(model)
    return model[0].reshape(problem.shape)


with phalanx.spmd.join() as session:
    data, target = getattr(datasets, f"load_{sys.argv[1]}")(return_X_y=True)
    found = search(session, Problem(session, data, target))
    if session.rank == 0:
        print(session.version, *(value.hex() for value in found.ravel()))
