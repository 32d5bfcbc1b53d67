"""`ray.util.collective` with the backend "phalanx", on four actors of two of Ray's nodes."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import ray
from ray.util import collective
from ray.util.collective.types import ReduceOp

import phalanx
import phalanx.ray

_names = itertools.count()


def everywhere(stations, function, *args):
    """Run a function in all stations at once, and return its results in the order of ranks."""
    return ray.get([each.run.remote(function, *args) for each in stations], timeout=60)


@pytest.fixture
def group(stations):
    """The name of a group of all stations, which `init_collective_group` has made."""
    name = f"group{next(_names)}"

    def enter(self, rank):
        collective.init_collective_group(4, rank, "phalanx", name)
        self.rank = rank

    ray.get([each.run.remote(enter, rank) for rank, each in enumerate(stations)])
    yield name
    everywhere(stations, lambda self: collective.destroy_collective_group(name))


@pytest.mark.parametrize("op, expected", [("SUM", 10), ("PRODUCT", 24), ("MIN", 1), ("MAX", 4)])
@pytest.mark.parametrize("count", [5, 100_000])
def test_allreduce(stations, group, op, expected, count):
    def allreduce(self):
        array = np.full(count, self.rank + 1, np.float32)
        collective.allreduce(array, group, ReduceOp[op])
        return float(array[0]), float(array[-1])

    assert everywhere(stations, allreduce) == [(expected, expected)] * 4


def test_reduce_changes_the_root_alone(stations, group):
    def reduce(self):
        array = np.full(10, self.rank, np.int64)
        collective.reduce(array, 2, group)
        return int(array[9])

    assert everywhere(stations, reduce) == [0, 1, 6, 3]


def test_broadcast(stations, group):
    def broadcast(self):
        array = np.full((3, 4), self.rank, np.float64)
        collective.broadcast(array, 3, group)
        return float(array.sum())

    assert everywhere(stations, broadcast) == [36] * 4


def test_allgather(stations, group):
    def allgather(self):
        outputs = [np.zeros((2, 3)) for _ in range(4)]
        collective.allgather(outputs, np.full((2, 3), self.rank), group)
        return [float(out[1, 2]) for out in outputs]

    assert everywhere(stations, allgather) == [[0, 1, 2, 3]] * 4


def test_reducescatter_leaves_the_inputs(stations, group):
    def reducescatter(self):
        inputs = [np.full(5, 10 * part + self.rank) for part in range(4)]
        output = np.zeros(5, inputs[0].dtype)
        collective.reducescatter(output, inputs, group)
        assert int(inputs[3][0]) == 30 + self.rank
        return int(output[4])

    assert everywhere(stations, reducescatter) == [6, 46, 86, 126]


@pytest.mark.parametrize("count", [3, 1_000_000])
def test_send_and_recv_in_another_order_than_they_come(stations, group, count):
    def exchange(self):
        if self.rank:
            collective.send(np.full(count, self.rank), 0, group)
            return None
        received = []
        for source in (3, 1, 2):
            array = np.zeros(count, np.int64)
            collective.recv(array, source, group)
            received.append(int(array[-1]))
        return received

    assert everywhere(stations, exchange)[0] == [3, 1, 2]


def test_recv_of_another_size_is_an_error_that_says_both(stations, group):
    def exchange(self):
        if self.rank == 1:
            collective.send(np.zeros(3), 0, group)
        if self.rank == 0:
            try:
                collective.recv(np.zeros(4), 1, group)
            except ValueError as error:
                return str(error)

    text = everywhere(stations, exchange)[0]
    assert "24 bytes" in text and "32" in text and group in text


def test_barrier_and_places(stations, group):
    def wait(self):
        collective.barrier(group)
        return collective.get_rank(group), collective.get_collective_group_size(group)

    assert everywhere(stations, wait) == [(rank, 4) for rank in range(4)]


def test_a_group_can_be_made_again_under_its_name(stations):
    def round_of(self, rank, world):
        collective.init_collective_group(world, rank, "phalanx", "again")
        array = np.ones(3)
        collective.allreduce(array, "again")
        collective.destroy_collective_group("again")
        return float(array[0])

    for members in (stations, stations[:2], stations):
        results = [each.run.remote(round_of, rank, len(members)) for rank, each in enumerate(members)]
        assert ray.get(results, timeout=60) == [len(members)] * len(members)


def test_a_group_that_the_driver_declares(stations):
    collective.create_collective_group(stations, 4, [3, 2, 1, 0], "phalanx", "declared")

    def use(self):
        array = np.full(3, collective.get_rank("declared"))
        collective.allreduce(array, "declared")
        rank = collective.get_rank("declared")
        collective.destroy_collective_group("declared")
        return rank, int(array[0])

    # Before its first operation a process has no rank.
    assert everywhere(stations, use) == [(rank, -4) for rank in (3, 2, 1, 0)]


def test_a_member_that_does_not_come_is_named_when_the_time_is_over(stations):
    def lonely(self):
        phalanx.ray.group_options(timeout=1)
        try:
            collective.init_collective_group(2, 0, "phalanx", "lonely")
            started = time.monotonic()
            try:
                collective.barrier("lonely")
            except phalanx.exceptions.GetTimeoutError as error:
                return str(error), time.monotonic() - started
        finally:
            phalanx.ray.group_options()
            collective.destroy_collective_group("lonely")

    text, seconds = ray.get(stations[0].run.remote(lonely), timeout=60)
    assert "1" in text and 0.9 < seconds < 25
