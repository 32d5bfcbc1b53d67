"""A thousand gets in one event loop, half of which are cancelled.

No thread waits: the loop watches two descriptors. Cancelling a task ends its wait alone, also if another
task awaits the same object.
"""

from __future__ import annotations

import asyncio
import sys

import phalanx

OBJECTS = 1000
TIMEOUT_S = 60.0


async def run(client: phalanx.AsyncClient) -> tuple[list[int], int]:
    """Return the values of the gets that were not cancelled, and the number of the others."""
    refs = [client.ref() for _ in range(OBJECTS)]
    tasks = [asyncio.create_task(client.get(ref)) for ref in refs]
    await asyncio.sleep(0)  # all gets are under way, and no object exists
    for task in tasks[::2]:
        task.cancel()
    for i, ref in enumerate(refs):
        await client.put(i, ref)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(isinstance(result, asyncio.CancelledError) for result in ended)
    values = [result for result in ended if isinstance(result, int)]
    # A cancelled get left its object alone: it can be awaited again.
    assert await refs[0] == 0
    return values, cancelled


async def connect_and_run() -> tuple[list[int], int]:
    async with phalanx.AsyncClient(timeout=TIMEOUT_S) as client:
        return await run(client)


def main() -> int:
    values, cancelled = asyncio.run(connect_and_run())
    print(f"{len(values)} values, {cancelled} gets cancelled")
    return 0 if values == list(range(1, OBJECTS, 2)) and cancelled == OBJECTS // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
