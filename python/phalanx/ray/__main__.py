"""``python -m phalanx.ray [--address ADDRESS] [--capacity BYTES]``: starts Phalanx on a host of Ray's cluster.

Run it on each host after ``ray start`` where Ray ends all processes that workers leave behind (the subreaper of
raylets), and where all cores compute and the user is not root: what workers start is as nice as they are.
Elsewhere the first worker starts the daemons.
"""

from __future__ import annotations

import argparse

from phalanx.ray import _hook


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m phalanx.ray", description=__doc__.split("\n\n")[1])
    parser.add_argument("--address", default="auto", help="of Ray's cluster, as in ray.init; default: auto")
    parser.add_argument("--capacity", type=int, help="bytes of this host's node; default: 30 %% of the memory")
    given = parser.parse_args()
    _hook.init(given.address, capacity=given.capacity, logging_level="error", log_to_driver=False)
    _hook.shutdown()


if __name__ == "__main__":
    main()
