"""k-means of the colours of a photograph: each rank has a part of the pixels, and all have the same centers.

    phalanx launch -n 4 --restarts 8 -- python kmeans.py

In each iteration a rank adds up its pixels by their nearest center, and an allreduce adds up these sums over all
ranks. The centers are the model. A rank that dies reads its pixels again, takes the centers of the last
checkpoint, and goes on: what is printed has the same bits as in a run without deaths. The photograph is
scikit-learn's china.jpg (pip install scikit-learn pillow).
"""

import numpy as np
from sklearn.datasets import load_sample_image

import phalanx.spmd

CENTERS = 8
SAMPLE, STARTS = 2000, 8
MOST_ITERATIONS = 200


def distances(points, centers):
    """Return the squared distance of each point to each center."""
    return (points**2).sum(1)[:, None] - 2 * points @ centers.T + (centers**2).sum(1)


def sums_of(points, centers):
    """Return for each center the sum of its points, their number, and the sum of their squared distances."""
    squares = distances(points, centers)
    nearest = squares.argmin(1)
    least = squares[np.arange(len(points)), nearest]
    columns = [*points.T, np.ones(len(points)), least]
    return np.stack([np.bincount(nearest, column, CENTERS) for column in columns], 1)


def moved(centers, sums):
    """Return the centers of the points; a center without points stays where it is."""
    counts = sums[:, 3:4]
    return np.where(counts > 0, sums[:, :3] / np.maximum(counts, 1), centers)


def first_centers(points):
    """Return the best centers of some points, of several starts by k-means++."""
    random = np.random.default_rng(0)
    sample = random.choice(points, SAMPLE, replace=False)
    found = []
    for _ in range(STARTS):
        centers = sample[:1]
        while len(centers) < CENTERS:
            squares = distances(sample, centers).min(1).clip(0)
            centers = np.vstack([centers, random.choice(sample, 1, p=squares / squares.sum())])
        for _ in range(20):
            sums = sums_of(sample, centers)
            centers = moved(centers, sums)
        found.append((sums[:, 4].sum(), centers.tolist()))
    return np.array(min(found)[1])


with phalanx.spmd.join() as session:
    pixels = load_sample_image("china.jpg").reshape(-1, 3) / 255.0
    points = pixels[session.rank :: session.world]

    # Every life gets the centers of the first one: calls before `load` are repeated.
    start = session.broadcast(first_centers(pixels) if session.rank == 0 else None)
    version, model = session.load()
    if version == 0:
        model = {"centers": start, "inertia": 0.0, "settled": False}
    while not model["settled"] and session.version < MOST_ITERATIONS:
        centers = model["centers"]
        sums = session.allreduce(prepare=lambda: sums_of(points, centers), shape=(CENTERS, 5), dtype="f8")
        after = moved(centers, sums)
        settled = bool(abs(after - centers).max() < 1e-4)
        model = {"centers": after, "inertia": float(sums[:, 4].sum()), "settled": settled}
        session.checkpoint(model)
    if session.rank == 0:
        print(session.version, model["inertia"].hex(), *(value.hex() for value in model["centers"].ravel()))
