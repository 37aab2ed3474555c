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
    AverageEnded,
    AverageFailed,
    BeginAnew,
    CancelAverage,
    ConnectPair,
    NoPartnerLeft,
    SeekPartner,
    StartAverage,
)

HOST = "127.0.0.1"


class Worker:
    """With parameters (4 * its number, ...), told what the test says."""

    def __init__(self, number: int, workers: int, settings: GroupSettings) -> None:
        self.settings = settings
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
            ended=self.ended.append,
            progress=lambda: self.numbers,
        )
        self.numbers = [number, 10 * number, 0]

    def change(self, by):
        self.parameters += by

    def until(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            self.clock(self.clock.now + 10_000_000)

    def value_of(self, future):
        found = []

        async def take():
            found.append(await future)

        self.kernel.spawn(take())
        self.kernel.run()
        return found[0]

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


def test_both_have_the_mean_and_keep_the_step_taken_meanwhile(three):
    one, other, third = three
    pair = one.exchanges.begin(3)
    meet = StartAverage(0, 0, 1, one.clock.now)
    one.exchanges.take(meet)
    other.exchanges.take(meet)
    other.parameters[0] += 16  # a step
    other.until(lambda: AverageEnded(0) in other.said)
    one.until(lambda: pair.arrived.done)
    assert one.parameters.tolist() == [2] * 5
    assert other.parameters.tolist() == [18, 2, 2, 2, 2]
    assert third.parameters.tolist() == [8] * 5
    assert (one.said, other.said) == ([SeekPartner(3), AverageEnded(0)], [AverageEnded(0)])
    assert (one.ended, other.ended) == ([pair], [])
    assert pair.joined <= pair.began <= pair.ended
    assert pair.nbytes == 40


def test_one_after_the_other_with_different_partners(three):
    for number, (seeker, partner) in enumerate([(0, 1), (1, 2), (2, 0), (0, 2)]):
        meet = StartAverage(number, seeker, partner, 0)
        pair = three[seeker].exchanges.begin(0)
        for worker in (seeker, partner):
            three[worker].exchanges.take(meet)
        for worker in (seeker, partner):
            three[worker].until(lambda n=number, w=worker: AverageEnded(n) in three[w].said)
        assert pair.arrived.done
    # (0, 4, 8) -> (2, 2, 8) -> (2, 5, 5) -> (3.5, 5, 3.5), which stays
    assert [worker.parameters[0].item() for worker in three] == [3.5, 5, 3.5]


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
    again = [SeekPartner(5)] if seeker == 0 else []
    assert one.said == [SeekPartner(5), AverageEnded(0, has=False), *again]
    for worker in (one, third):
        worker.exchanges.take(StartAverage(1, 0, 2, 0))
    for worker in (one, third):
        worker.until(lambda worker=worker: AverageEnded(1) in worker.said)
    assert pair.arrived.done
    assert [worker.parameters[0].item() for worker in three] == [4, 4, 4]
    assert other.said == []


def average(*workers, number=0, **how):
    """Let two workers average, or the second give the first what it has kept."""
    one, other = workers
    meet = StartAverage(number, one.exchanges._me, other.exchanges._me, 0, **how)
    if not how.get("gives"):
        one.exchanges.begin(0)
    for worker in workers:
        worker.exchanges.take(meet)
    for worker in workers:
        worker.until(lambda worker=worker: AverageEnded(number) in worker.said)


def successor(lost, *others, generation=1):
    """Return a new process of a worker, which is connected with the others."""
    lost.exchanges.leave(in_order=lambda: False)
    new = Worker(lost.exchanges._me, 1, lost.settings)
    for other in others:
        other.exchanges.take(ConnectPair(new.exchanges._me, generation))
        new.exchanges.take(ConnectPair(other.exchanges._me, generation))
    return new


def test_a_new_process_is_given_the_model_after_the_last_average_and_goes_on_from_there(three):
    one, other, third = three
    average(one, other, number=0)
    one.parameters += 16  # a step that is in no other model
    one.numbers = [77, 77, 77]
    other.parameters += 100  # the model of the other is no matter
    new = successor(one, other, third)
    given = new.exchanges.joins()
    average(new, other, number=1, gives=True)
    new.until(lambda: given.done)
    values, numbers = new.value_of(given)
    assert values.tolist() == [2] * 5  # the mean of 0 and 4
    assert numbers == [0, 0, 0]
    assert other.parameters.tolist() == [102] * 5
    new.parameters = values
    average(third, new, number=2)
    assert new.parameters.tolist() == third.parameters.tolist() == [5] * 5
    again = successor(new, other, third, generation=2)  # the newest is with the third now
    given = again.exchanges.joins()
    average(again, third, number=3, gives=True, forget=[1])
    again.until(lambda: given.done)
    assert again.value_of(given).values.tolist() == [5] * 5
    for worker in (new, again):
        worker.exchanges.leave(in_order=lambda: False)


def test_a_new_process_of_a_worker_that_had_no_average_begins_as_that_one_did(three):
    new = successor(three[0], three[1])
    given = new.exchanges.joins()
    new.exchanges.take(BeginAnew())
    assert new.value_of(given) is None
    new.exchanges.leave(in_order=lambda: False)


def test_nobody_left_is_over_at_once(three):
    pair = three[0].exchanges.begin(0)
    three[0].exchanges.take(NoPartnerLeft())
    assert pair.arrived.done
    assert pair.began == pair.ended
    assert three[0].ended == []


def test_a_partner_that_cannot_be_reached_is_told_of_by_name(three):
    one, other, _ = three
    other.exchanges.leave(in_order=lambda: False)
    one.exchanges.begin(0)
    one.exchanges.take(StartAverage(4, 0, 1, 0))
    one.until(lambda: len(one.said) > 1)
    assert isinstance(one.said[1], AverageFailed)
    assert one.said[1].number == 4
    assert one.said[1].reason.startswith("worker-1: ")
    assert one.parameters.tolist() == [0] * 5
