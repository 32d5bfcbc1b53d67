"""Counts words in four processes: each counts its own text, and all exchange the counts by `all_to_all`.

The shuffle of a map-reduce: mapper i sends to reducer j the counts of the words that belong to j. Every
process is both. Objects are refs in a matrix, so nothing is named and nothing is left at the end.
"""

from __future__ import annotations

import multiprocessing
import sys
import zlib
from collections import Counter

import phalanx

WORKERS = 4
TEXTS = ["to be or not to be", "to see or not to see", "be not as you see", "to you or to me"]
TIMEOUT_S = 30.0


def owner(word: str) -> int:
    """Return the worker that adds up the counts of a word; the same in every process."""
    return zlib.crc32(word.encode()) % WORKERS


def count(
    address: str, worker: int, exchange: list[list[phalanx.ObjectRef]], result: phalanx.ObjectRef
) -> None:
    with phalanx.Client(address, timeout=TIMEOUT_S) as client:
        parts: list[Counter[str]] = [Counter() for _ in range(WORKERS)]
        for word in TEXTS[worker].split():
            parts[owner(word)][word] += 1
        mine = client.all_to_all(
            outgoing=list(zip(exchange[worker], parts)),
            incoming=[row[worker] for row in exchange],
        )
        total: Counter[str] = sum(mine, Counter())
        client.put(total, result)


def main() -> int:
    client = phalanx.init(timeout=TIMEOUT_S)
    exchange = [[client.ref() for _ in range(WORKERS)] for _ in range(WORKERS)]
    results = [client.ref() for _ in range(WORKERS)]
    spawned = multiprocessing.get_context("spawn").Process
    workers = [
        spawned(target=count, args=(client.address, i, exchange, results[i]), daemon=True)
        for i in range(WORKERS)
    ]
    for process in workers:
        process.start()
    total: Counter[str] = sum(client.get(results), Counter())
    for process in workers:
        process.join()
    print(", ".join(f"{word} {n}" for word, n in sorted(total.items())))
    return 0 if total == Counter(" ".join(TEXTS).split()) else 1


if __name__ == "__main__":
    sys.exit(main())
