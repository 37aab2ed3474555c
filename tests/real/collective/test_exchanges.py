"""Averages of two workers over torch.distributed, here all in one process."""

from __future__ import annotations

import time

import pytest
import torch
from torch.distributed import HashStore

from outpace.kernel import Kernel
from outpace.real.collective.exchanges import PairwiseExchanges
from outpace.real.collective.group import GroupSettings
from outpace.real.net.clock import RealClock
from outpace.real.net.peer_messages import (
    CancelAverage,
    StartAverage,
    TakePart,
)

HOST = "127.0.0.1"


class Worker:
    """A worker with parameters (4 * its number, ...), which receives messages from the test."""

    def __init__(self, number: int, workers: int, settings: GroupSettings) -> None:
        self.clock = RealClock()
        self.kernel = Kernel(self.clock)
        self.parameters = torch.full((5,), 4.0 * number, dtype=torch.float64)
        self.said, self.ended = [], []
        others = [n for n in range(workers) if n != number]
        self.exchanges = PairwiseExchanges(
            self.kernel,
            self.clock,
            number,
            others,
            settings,
            read=lambda: self.parameters.clone(),
            change=self.change,
            tell=self.said.append,
            ended=lambda *told: self.ended.append(told),
        )

    def change(self, by):
        self.parameters += by

    def until(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            self.clock(self.clock.now + 10_000_000)

    def connect(self):
        self.kernel.spawn(self.exchanges.connect())
        self.kernel.run()


@pytest.fixture
def three():
    settings = GroupSettings(HashStore(), HOST, "gloo")
    workers = [Worker(number, 3, settings) for number in range(3)]
    for worker in workers:
        worker.connect()
    yield workers
    for worker in workers:
        worker.exchanges.leave(in_order=lambda: False)
    for worker in workers:
        worker.exchanges.join(10.0)


def test_both_have_the_mean_and_keep_the_step_taken_meanwhile(three):
    one, other, third = three
    pair = one.exchanges.begin(3)
    meet = StartAverage(0, 0, 1, one.clock.now)
    one.exchanges.take(meet)
    other.exchanges.take(meet)
    other.parameters[0] += 16  # a step
    other.until(lambda: TakePart("averaged", 0) in other.said)
    one.until(lambda: pair.arrived.done)
    assert one.parameters.tolist() == [2] * 5
    assert other.parameters.tolist() == [18, 2, 2, 2, 2]
    assert third.parameters.tolist() == [8] * 5
    assert (one.said, other.said) == (
        [TakePart("pair", 3), TakePart("averaged", 0)],
        [TakePart("averaged", 0)],
    )
    ((told, nbytes, (begun, ended)),) = one.ended
    assert (told, other.ended, nbytes) == (pair, [], 40)
    assert pair.joined <= pair.began <= pair.ended
    assert begun <= ended == pair.ended


def test_who_leaves_takes_its_half_first(three):
    one, other, _ = three
    pair = one.exchanges.begin(0)
    meet = StartAverage(0, 0, 1, 0)
    other.exchanges.take(meet)
    one.exchanges.take(meet)
    other.exchanges.leave(in_order=lambda: True)
    assert other.parameters.tolist() == [2] * 5
    one.until(lambda: pair.arrived.done)
    assert one.parameters.tolist() == [2] * 5


@pytest.mark.parametrize("seeker", [0, 1])
def test_with_who_is_gone_nothing_comes_about_and_who_wanted_it_asks_again(three, seeker):
    one, other, third = three
    pair = one.exchanges.begin(5)  # with the third, if it is not the seeker
    one.exchanges.take(StartAverage(0, seeker, 1 - seeker, 0))
    one.exchanges.take(CancelAverage(0))
    one.exchanges.take(CancelAverage(0))  # too late
    again = [TakePart("pair", 5)] if seeker == 0 else []
    assert one.said == [TakePart("pair", 5), TakePart("averaged", 0), *again]
    for worker in (one, third):
        worker.exchanges.take(StartAverage(1, 0, 2, 0))
    for worker in (one, third):
        worker.until(lambda worker=worker: TakePart("averaged", 1) in worker.said)
    assert pair.arrived.done
    assert [worker.parameters[0].item() for worker in three] == [4, 4, 4]
    assert other.said == []
