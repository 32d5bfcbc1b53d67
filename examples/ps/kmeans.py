"""k-means of the colours of a photograph: each worker has a part of the pixels, and the table what its pixels add up to.

    phalanx launch --servers 2 --workers 4 --restarts 20 -- python3 kmeans.py --sync asp

A row of the table is that of a worker and a center: the sums of red, green and blue of the worker's pixels that are
nearest to the center, and their count. In each clock a worker pulls all rows, has the centers from these, and puts new rows
of its own in the place of the old ones (update="assign"): one table, so that sums and counts have one clock. With --sync=bsp
that is Lloyd's algorithm, and the last line has the same bits in each run, also when servers and workers die, and with
--serial=4. Else a worker has older rows of some others. The photograph is scikit-learn's china.jpg
(pip install scikit-learn pillow).
"""

import runs  # isort: skip  (before NumPy)
import numpy as np

CENTERS = 8
SAMPLE, STARTS = 2000, 8


def distances(points, centers):
    """Return the squared distance of each point to each center."""
    return (points**2).sum(1)[:, None] - 2 * points @ centers.T + (centers**2).sum(1)


def sums_of(points, centers):
    """Return for each center the sum of its points, and their number. The points are bytes: integers, which are exact."""
    nearest = distances(points, centers).argmin(1)
    columns = [*points.T, np.ones(len(points))]
    return np.stack([np.bincount(nearest, column, CENTERS) for column in columns], 1).astype(np.int64)


def moved(centers, sums):
    """Return the centers of the points; a center without points stays where it is."""
    return np.where(sums[:, 3:] > 0, sums[:, :3] / np.maximum(sums[:, 3:], 1), centers)


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
            centers = moved(centers, sums_of(sample, centers))
        found.append((distances(sample, centers).min(1).sum(), centers.tolist()))
    return np.array(min(found)[1])


class KMeans:
    def __init__(self, pixels, workers):
        self.points, self.workers = pixels, workers
        self.first = first_centers(pixels)

    def centers(self, rows):
        """Return the centers of all workers' rows: in the beginning there are none."""
        return moved(self.first, rows.reshape(self.workers, CENTERS, 4).sum(0))

    def reported(self):
        return np.arange(self.workers * CENTERS)

    def batch(self, rank, workers, clock):
        del workers, clock
        return Batch(self, rank)

    def report(self, rows):
        inertia = distances(self.points, self.centers(rows)).min(1).mean()
        return f"mean squared distance {inertia:.6f}"


class Batch:
    """All pixels of a worker, in every clock."""

    def __init__(self, model, rank):
        self.model, self.rank = model, rank
        self.keys = model.reported()

    def push(self, rows):
        points = self.model.points[self.rank :: self.model.workers]
        keys = np.arange(self.rank * CENTERS, (self.rank + 1) * CENTERS)
        return keys, sums_of(points, self.model.centers(rows))


def load(workers, every):
    from sklearn.datasets import load_sample_image

    return KMeans(load_sample_image("china.jpg").reshape(-1, 3)[::every].astype(float), workers)


def main():
    flags = runs.parser(__doc__, clocks=40)
    flags.add_argument("--every", type=int, default=1, metavar="N", help="take every Nth pixel (%(default)s)")
    args = flags.parse_args()
    # The number of workers is not known to a server: a sparse table, whose rows are zeros before their first push.
    table = {"name": "pixels", "width": 4, "dtype": "i64", "update": "assign", "split": "hash"}
    runs.run(args, table, lambda workers: load(workers, args.every))


if __name__ == "__main__":
    main()
