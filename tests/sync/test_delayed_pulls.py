"""The clock at which a delayed pull is answered (FluentPS, algorithm 1), worked out by hand.

`callbacks[...]` of the algorithm holds a delayed pull under V (soft barrier) or under the puller's
progress i (lazy execution), and the shard executes the pulls that are stored under V when it
finishes iteration V: a soft pull is answered at clock V+1, a lazy one at clock i+1. No condition is
evaluated again.
"""

from __future__ import annotations

import pytest
import torch

from outpace.optim import Sgd
from outpace.sync import (
    Asp,
    Bsp,
    Buffer,
    Decision,
    Draw,
    Dsps,
    DynamicPssp,
    Policy,
    Pssp,
    Reason,
    Ssp,
)
from outpace.sync.conditions import Condition, Conditioned
from outpace.sync.messages import Pull, Push
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account

HOLD, SPARE = 0.0, 0.999  # coins below and above every probability used here


class Workers:
    """Two workers and their shard; a nanosecond passes between messages."""

    def __init__(self, policy: Policy) -> None:
        block = parameter_block(torch.zeros(1), Sgd(lr=0.1))
        self.shard, self.now = Shard(0, block, 2, policy, Account()), 0

    def step(self, worker: int, iteration: int, coin: float = SPARE) -> list[tuple[int, int]]:
        """Push and pull; return (worker, iteration) of the pulls that are answered now."""
        answered = []
        for message in (Push(worker, iteration, 0, torch.zeros(1)), Pull(worker, iteration, coin)):
            self.now += 1
            replies = self.shard.receive(message, self.now)
            answered += [(reply.worker, reply.iteration) for reply in replies]
        return answered


def clock_of_the_answer(policy: Policy, iteration: int) -> int:
    """Return V when worker 0's pull of this iteration, held at V = 0, is answered."""
    workers = Workers(policy)
    for before in range(iteration):
        assert workers.step(0, before) == [(0, before)]
    assert workers.step(0, iteration, HOLD) == []
    for behind in range(iteration + 1):
        if (0, iteration) in workers.step(1, behind):
            return workers.shard.clock
    raise AssertionError("never answered")


@pytest.mark.parametrize(
    "pssp",
    [lambda buffer: Pssp(3, 0.5, buffer=buffer), lambda buffer: DynamicPssp(3, buffer=buffer)],
)
def test_pssp_answers_a_delayed_pull_at_the_next_clock_or_at_its_own(pssp):
    # The coin let worker 0 pass the bound 3 at leads 3, 4 and 5 and holds it at lead 6.
    assert clock_of_the_answer(pssp(Buffer.SOFT), 6) == 1
    assert clock_of_the_answer(pssp(Buffer.LAZY), 6) == 7


def test_a_coin_is_drawn_at_each_pull_or_at_each_new_lead():
    # s = 2. Worker 0 passes at lead 2 by its coin; worker 1 then finishes iteration 0, so V = 1 and
    # worker 0's next lead is 2 again: with `lead` nothing is drawn, though the coin would hold.
    for draw, answered in ((Draw.PULL, []), (Draw.LEAD, [(0, 3)])):
        workers = Workers(Pssp(2, 0.5, draw=draw, buffer=Buffer.SOFT))
        for iteration in range(3):
            assert workers.step(0, iteration) == [(0, iteration)]
        workers.step(1, 0)
        assert workers.step(0, 3, HOLD) == answered
    # Lead 3 is new, so its coin holds: until V = 2. Then lead 3 has to be drawn for again, and
    # so has lead 2, since a pull was held.
    assert workers.step(0, 4, HOLD) == []
    assert (0, 4) in workers.step(1, 1)
    workers.step(1, 2)
    assert workers.shard.clock == 3
    assert workers.step(0, 5, HOLD) == []


def test_ssp_answers_a_delayed_pull_at_the_next_clock_or_at_its_own():
    # With s = 3 iteration 3 is the first that is held: 3 < V + 3 is false at V = 0.
    assert clock_of_the_answer(Ssp(3, buffer=Buffer.SOFT), 3) == 1
    assert clock_of_the_answer(Ssp(3, buffer=Buffer.LAZY), 3) == 4


@pytest.mark.parametrize(("buffer", "clock"), [(Buffer.SOFT, 1), (Buffer.LAZY, 4)])
@pytest.mark.parametrize("kind", [Ssp, Bsp, Pssp, Dsps])
def test_a_users_condition_is_held_by_the_buffer_of_its_policy(kind, buffer, clock):
    judged = []

    def condition(pull, view):
        judged.append((pull.worker, pull.iteration))
        return pull.iteration < view.clock + 3  # SSP with s = 3

    options = {Ssp: (0,), Bsp: (), Pssp: (0, 1.0), Dsps: (0,)}[kind]
    policy = Conditioned(kind(*options, buffer=buffer), pull=Condition("ssp", condition))
    assert clock_of_the_answer(policy, 3) == clock
    assert judged.count((0, 3)) == 1, "a pull in a buffer is not judged again"


def test_a_users_condition_without_a_buffer_is_judged_after_every_push():
    judged = []

    def condition(pull, view):
        judged.append((pull.worker, pull.iteration))
        return pull.iteration < view.clock + 2

    # Iteration 3 needs V = 2; a buffer would answer it at V = 1 or V = 4.
    policy = Conditioned(
        Asp(), pull=Condition("ssp", lambda pull, view: pull.iteration < 3 or condition(pull, view))
    )
    assert clock_of_the_answer(policy, 3) == 2
    assert judged.count((0, 3)) == 3, "on arrival, and after each of two pushes"


def test_a_decision_of_a_users_condition_overrides_the_buffer():
    def condition(pull, view):
        lead = pull.iteration - view.clock
        if lead < 3:
            return Decision(None, Reason.CONDITION, lead)
        return Decision(view.clock + 2, Reason.NO_CONDITION, lead)

    policy = Conditioned(Ssp(3, buffer=Buffer.LAZY), pull=Condition("later", condition))
    assert clock_of_the_answer(policy, 3) == 2


ALL = Condition("all", lambda pull, view: pull.iteration < view.clock)


@pytest.mark.parametrize("policy", [Bsp(), Conditioned(Asp(), pull=ALL)])
def test_a_held_pull_is_answered_once_and_one_that_comes_again_after_its_answer_again(policy):
    workers = Workers(policy)
    assert workers.step(0, 0) == []
    assert workers.shard.receive(Pull(0, 0), 10) == []
    assert workers.step(1, 0) == [(0, 0), (1, 0)]
    (again,) = workers.shard.receive(Pull(0, 0), 20)  # its answer was lost
    assert (again.worker, again.iteration, again.held) == (0, 0, 0)
