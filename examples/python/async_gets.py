"""A thousand gets in one event loop, half of which are cancelled.

No thread waits: the loop watches one descriptor. Cancelling a task ends its wait alone, also if another
task awaits the same object.
"""

from __future__ import annotations

import asyncio
import sys

import phalanx

OBJECTS = 1000
TIMEOUT_S = 60.0


async def run(client: phalanx.Client) -> tuple[list[int], int]:
    """Return the values of the gets that were not cancelled, and the number of the others."""
    refs = [client.ref() for _ in range(OBJECTS)]
    tasks = [asyncio.create_task(client.get_async(ref, timeout=TIMEOUT_S)) for ref in refs]
    await asyncio.sleep(0)  # all gets are under way, and no object exists
    for task in tasks[::2]:
        task.cancel()
    # A put of a small object does not wait. What can wait belongs into asyncio.to_thread.
    for i, ref in enumerate(refs):
        client.put(i, ref)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(isinstance(result, asyncio.CancelledError) for result in ended)
    values = [result for result in ended if isinstance(result, int)]
    # A cancelled get left its object alone: it can be awaited again.
    assert await refs[0] == 0
    return values, cancelled


def main() -> int:
    client = phalanx.init(timeout=TIMEOUT_S)
    values, cancelled = asyncio.run(run(client))
    print(f"{len(values)} values, {cancelled} gets cancelled")
    return 0 if values == list(range(1, OBJECTS, 2)) and cancelled == OBJECTS // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
