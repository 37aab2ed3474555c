"""What a user writes: strategies, conditions, a task, an optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

import outpace
from outpace.sync import Apply, Decision, PeerStrategy, Policy, Reason, iterations, quorum_arrived


@dataclass(frozen=True)
class Quorum(Policy):
    """Finishes an iteration when `quorum` workers have pushed it."""

    quorum: int
    apply: Apply = Apply.ON_ADVANCE

    def may_answer(self, pull, view):
        lead = pull.iteration - view.clock
        if lead < 0:
            return Decision(None, Reason.WITHIN_BOUND, lead)
        return Decision(pull.iteration + 1, Reason.BEYOND_BOUND, lead)

    def patience_s(self, view):
        return quorum_arrived(view, self.quorum)


@dataclass(frozen=True)
class EveryNth(PeerStrategy):
    """Averages the gradients of every n-th iteration and drops the others."""

    every: int

    averages_gradients: ClassVar[bool] = True

    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            if iteration.number % self.every == 0:
                reduced = await me.begin_all_reduce(iteration.gradient).result()
                model.commit(reduced.mean, 1, reduced.weight)


def not_too_far(pull, view):
    """SSP that compares with the median worker, not with the slowest."""
    return view.count(pull.iteration - 3) >= view.live / 2


def quarter_missing(view):
    """Finish an iteration 10 ms after three of four workers have pushed it."""
    if view.reached >= view.live:
        return True
    return 0.01 if view.pushed >= 3 else False


def often(view):
    """Pull in every third iteration only."""
    return view.in_a_row < 2


def make_task():
    """Return a regression in float64, with a model in the precision of NumPy."""
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 5, generator=source, dtype=torch.float64)
    targets = inputs @ torch.randn(5, 2, generator=source, dtype=torch.float64)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 6, dtype=torch.float64),
        torch.nn.Tanh(),
        torch.nn.Linear(6, 2, dtype=torch.float64),
    )
    return outpace.Task(
        model,
        loss=torch.nn.functional.mse_loss,
        train=(inputs, targets),
    )


def make_large_task():
    """Return a regression whose blocks are so large that optimizers take their steps in chunks."""
    inputs = torch.randn(32, 600, generator=torch.Generator().manual_seed(1))
    model = torch.nn.Linear(600, 600)
    return outpace.Task(model, loss=torch.nn.functional.mse_loss, train=(inputs, inputs.flip(1)))
