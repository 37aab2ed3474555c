"""A shard whose run gets another number of workers while it goes on.

The gradient of worker w is 10^w, the learning rate 1, and w starts at 0, so the digits of the
parameters show whose gradients they have, and by what they were divided.
"""

from __future__ import annotations

import pytest
import torch
from tests.support.shard_driver import Account

from outpace.errors import ProtocolError
from outpace.optim import Sgd
from outpace.sync import Apply, Asp, Bsp, Buffer, Ssp
from outpace.sync.messages import Leave, Lost, Pull, Push, Rejoin, SetWorkers
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

STAYS = True


class Driven:
    """A shard, and the time at which it got its last message."""

    def __init__(self, policy, workers=2, optimizer=None):
        block = parameter_block(torch.zeros(1, dtype=torch.float64), optimizer or Sgd(lr=1.0))
        self.shard, self.now = Shard(0, block, workers, policy, Account()), 0

    def take(self, *messages):
        """Return the workers that are answered."""
        answered = []
        for message in messages:
            self.now += 1
            answered += [reply.worker for reply in self.shard.receive(message, self.now)]
        return answered

    def iteration(self, number, *workers):
        """These workers push and pull; return those that are answered."""
        for worker in workers:
            gradient = torch.full((1,), 10.0**worker, dtype=torch.float64)
            self.take(Push(worker, number, 0, gradient))
        return self.take(*(Pull(worker, number) for worker in workers))

    @property
    def moved(self):
        """By how much since this was asked for last."""
        before, self._before = getattr(self, "_before", 0.0), -self.shard.read().item()
        return self._before - before


def joins(worker, first):
    """What a shard hears when a new worker joins."""
    return Lost(worker, STAYS), Rejoin(worker, first)


def test_bsp_takes_the_mean_of_two_workers_and_from_the_next_iteration_on_of_three():
    run = Driven(Bsp())
    assert run.iteration(0, 0, 1) == [0, 1]
    assert run.moved == 11 / 2
    run.take(SetWorkers(3), *joins(2, 1))
    assert run.iteration(1, 0, 1) == []  # it waits for the new worker
    assert run.moved == 0
    run.iteration(1, 2)
    assert run.shard.clock == 2
    assert run.moved == 111 / 3
    run.take(Leave(2), SetWorkers(2))
    assert run.iteration(2, 0, 1) == [0, 1]
    assert run.moved == 11 / 2


def test_an_iteration_that_is_open_when_a_worker_joins_later_is_finished_without_it():
    run = Driven(Bsp())
    run.take(SetWorkers(3), *joins(2, 1))  # another server has finished iteration 0
    assert run.iteration(0, 0, 1) == [0, 1]
    assert run.moved == 11 / 2
    run.iteration(1, 0, 1, 2)
    assert run.moved == 111 / 3


def test_the_shard_waits_for_a_worker_from_the_moment_that_it_joins():
    """Else it could be at another iteration than the others when the worker begins."""
    run = Driven(Bsp())
    run.take(SetWorkers(3), Lost(2, STAYS))
    assert run.iteration(0, 0, 1) == []
    assert run.take(Rejoin(2, 1)) == [0, 1]  # it was told to begin behind this iteration


def test_a_worker_takes_no_part_before_it_joins():
    run = Driven(Bsp())
    run.take(SetWorkers(3))
    assert run.iteration(0, 0, 1) == [0, 1]
    with pytest.raises(ProtocolError, match="worker 2 pushed after it had left"):
        run.iteration(1, 2)


def test_the_bound_of_ssp_is_kept_for_a_worker_that_joins_and_for_those_ahead_of_it():
    run = Driven(Ssp(1, buffer=Buffer.SOFT, apply=Apply.ON_ARRIVAL))
    assert run.iteration(0, 0, 1) == [0, 1]
    assert run.iteration(1, 0) == [0]
    run.take(SetWorkers(3), *joins(2, 1))
    assert run.iteration(2, 0) == []  # two ahead of the slowest: it waits for workers 1 and 2
    assert run.iteration(1, 1) == [1]
    run.iteration(1, 2)
    assert run.shard.clock == 2  # so worker 0 is answered
    assert run.shard.describe_waiting() == ""


def test_on_arrival_each_gradient_is_divided_by_the_number_of_workers_asked_for():
    run = Driven(Asp(apply=Apply.ON_ARRIVAL))
    run.iteration(0, 0)
    assert run.moved == 1 / 2
    run.take(SetWorkers(4), *joins(2, 0), *joins(3, 0))
    run.iteration(1, 0)
    run.iteration(0, 3)
    assert run.moved == 1 / 4 + 1000 / 4
    run.take(Leave(3), Leave(2), Leave(1), SetWorkers(1))
    run.iteration(2, 0)
    assert run.moved == 1.0


def test_a_worker_that_is_lost_for_good_leaves_the_divisor_as_it_was():
    run = Driven(Asp(apply=Apply.ON_ARRIVAL), workers=4)
    run.take(Lost(3, False))
    run.iteration(0, 0)
    assert run.moved == 1 / 4


def test_the_learning_rate_goes_on_where_it_is():
    """The progress of training is in iterations: two pushes of two workers, four of four."""
    run = Driven(Asp(apply=Apply.ON_ARRIVAL))
    for number in range(8):
        run.iteration(number, 0)  # the last one begins after 7 / 2 iterations
    before = run.shard.state().furthest
    run.take(SetWorkers(4))
    for number in range(8, 12):
        run.iteration(number, 0)  # the last one begins after 8 / 2 + 3 / 4
    assert (before, run.shard.state().furthest) == (3.5, 4.75)


def test_the_state_of_a_shard_that_has_grown_goes_on_in_one_of_that_size():
    run = Driven(Bsp())
    run.take(SetWorkers(3), *joins(2, 0))
    run.iteration(0, 2)
    other = Driven(Bsp(), workers=3)
    other.shard.restore(run.shard.state(), 0)
    assert other.iteration(0, 0, 1) == [0, 1]
    assert other.moved == 111 / 3


def test_a_shard_needs_a_worker():
    with pytest.raises(ProtocolError, match="cannot have 0 workers"):
        Driven(Bsp()).take(SetWorkers(0))
