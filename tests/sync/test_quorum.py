"""A quorum counts pushes of the iteration itself, not workers that have skipped it.

PSP-SGD, algorithm 1, line 12, and FluentPS, table III (count[V] = N_t): an update has at least c
gradients, unless all workers have responded. A worker skips an iteration when it continues with one
that another server has reached, as with partial pull. One parameter starts at 0; the update is the
sum of the gradients at a learning rate of 1, so the parameter is minus the sum of the gradients
that counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from outpace.optim import Sgd
from outpace.sync import (
    Apply,
    Decision,
    DropStragglers,
    PartialPush,
    Policy,
    Pull,
    Reason,
    Scale,
    ShardView,
    quorum_arrived,
)
from outpace.sync.messages import Push
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account


@dataclass(frozen=True)
class UsersQuorum(Policy):
    """A user's policy, as in docs/extending.md."""

    quorum: int
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.SUM

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        lead = pull.iteration - view.clock
        return Decision(pull.iteration + 1, Reason.BEYOND_BOUND, lead)

    def patience_s(self, view: ShardView) -> float:
        return quorum_arrived(view, self.quorum)


TWO = [
    PartialPush(2, scale=Scale.SUM),
    PartialPush(quorum_percent=50.0, scale=Scale.SUM).for_workers(4),
    DropStragglers(2, scale=Scale.SUM),
    UsersQuorum(2),
]


def shard_of(policy: Policy, workers: int = 4) -> Shard:
    block = parameter_block(torch.zeros(1, dtype=torch.float64), Sgd(lr=1.0))
    return Shard(0, block, workers, policy, Account())


def push(shard: Shard, worker: int, iteration: int, gradient: float) -> tuple[int, float]:
    """Push a gradient; return the clock and the parameter after it."""
    value = torch.tensor([gradient], dtype=torch.float64)
    shard.receive(Push(worker, iteration, shard.version, value), 0)
    return shard.clock, shard.read().item()


@pytest.mark.parametrize("policy", TWO, ids=lambda policy: type(policy).__name__)
def test_an_update_has_as_many_gradients_as_the_quorum(policy):
    shard = shard_of(policy)
    assert push(shard, 0, 1, 10.0) == (0, 0.0)  # it is ahead, and fills no place in iteration 0
    assert push(shard, 1, 0, 1.0) == (0, 0.0)
    assert push(shard, 2, 0, 2.0) == (1, -3.0)  # two gradients of iteration 0
    assert push(shard, 1, 1, 4.0) == (2, -17.0)  # 10 and 4, of iteration 1


@pytest.mark.parametrize("policy", TWO, ids=lambda policy: type(policy).__name__)
def test_an_iteration_that_too_few_workers_push_ends_when_all_have_responded(policy):
    shard = shard_of(policy, workers=3)
    assert push(shard, 0, 1, 10.0) == (0, 0.0)
    assert push(shard, 1, 1, 20.0) == (0, 0.0)
    # Iteration 0 has one gradient and gets no more; iteration 1 has its two.
    assert push(shard, 2, 0, 1.0) == (2, -31.0)
