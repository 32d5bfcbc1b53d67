"""An actor that runs what tests send it."""

from __future__ import annotations

import ray

import phalanx.ray


@ray.remote
class Station:
    """Runs functions, which get the station as their first argument, and keep what they like in it."""

    def run(self, function, *args, **kwargs):
        return function(self, *args, **kwargs)

    @phalanx.ray.method
    def produce(self, function, *args):
        return function(self, *args)

    @phalanx.ray.method
    async def produce_later(self, value):
        return value

    @phalanx.ray.method
    def total(self, first, second=0, *, last=0):
        return int(sum(value if isinstance(value, int) else value.sum() for value in (first, second, last)))
