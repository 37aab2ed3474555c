"""HPSGD: a worker computes on a local replica while the sum of its earlier gradients is averaged.

The paper (section 3.1) has two activities in every worker that share memory: P_t trains, P_s
synchronises. Here P_s is the all-reduce itself, which needs no separate activity; P_t checks after
each step whether it is done, and so never waits for it. A synchronization changes the model by

    W ← W − μ · mean over the workers of the sum of their gradients in it     (equation 1)

where the mean is over all N workers at the beginning of the run, so that each gradient has the same
weight even if workers have left. While a synchronization is under way, gradients are accumulated
for the next one (two buffers, swapped), so none is lost or counted twice.

Until the first step of a synchronization is over, gradients are computed at the global model W.
Then they are computed at a replica of W on which this worker has taken its steps since. The replica
is discarded when the synchronization is done.

The paper has plain SGD only. Here W takes the steps of any optimizer along the averaged gradients.
With SGD the replica takes plain steps. With another optimizer it takes the steps of a copy of the
optimizer, whose state is copied from the optimizer of W when the replica is made. Such optimizers
divide by the size of the gradient, so the sum of k gradients gives no longer step than one
gradient. So they are given the mean, and the learning rate is multiplied; with SGD both ways give
the same step.

If a synchronization takes as long as k steps, there is one in every k steps. Local SGD averages
once in γ + 1 + k steps; in this time HPSGD has (γ + 1)/k + 1 synchronizations (section 3.2).

In the paper workers also "start to feed-forward at the same time" (section 1, figure 1), and the
wait for the slowest in every iteration is the main loss of HPSGD (section 4.2). Algorithm 2 has no
such wait and does not need it; the option `start_together` adds it. A worker enters the meeting
when its gradient is computed, before any wait for an all-reduce, so meetings cannot block
all-reduces. A worker that leaves counts as present in all later meetings, before it synchronises
its remaining gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from outpace.blocks.block import value_of
from outpace.support.checks import Steps
from outpace.sync.peers.context import PeerContext, Reduced, Reduction
from outpace.sync.peers.iterations import Iteration, iterations
from outpace.sync.peers.strategy import BufferAveragingStrategy

Commit: TypeAlias = Literal["immediate", "delayed"]
RateByWindow: TypeAlias = Literal["linear", "sqrt", "constant"]
_GROWTH_LOST: Final = {"linear": 0.0, "sqrt": 0.5, "constant": 1.0}  # exponent of the window


@dataclass(frozen=True, slots=True)
class Hpsgd(BufferAveragingStrategy):
    """Computes on a local replica while the sum of earlier gradients is all-reduced.

        outpace.sync.Hpsgd(commit="delayed")  # sync: {kind: hpsgd, commit: delayed}

    Args:
        commit: when averaged gradients change the global model. `immediate`: as soon as they have
            arrived. `delayed`, as the paper prints it: when the next synchronization begins; the
            first gradient of that synchronization is then still computed at the old model.
        window: number of gradients accumulated during a synchronization at which a worker waits
            for it; None: the worker never waits.
        rate_by_window: how the learning rate of a commit grows with the mean number of iterations
            per worker in it. The paper adds the gradients up, which is linear. SGD steps along
            their sum; other optimizers step along their mean with a larger learning rate. None:
            linear with SGD, constant with other optimizers.
        start_together: True: workers begin each iteration together, when the slowest worker has
            computed its gradient of the previous iteration.
        synchronizer: the part of a real run that synchronises: a thread of the worker's process. (A
            separate process was no faster.)

    Raises:
        ValueError: if `window` is not positive.
    """

    commit: Commit = "immediate"
    window: Steps | None = None
    rate_by_window: RateByWindow | None = None
    start_together: bool = False
    synchronizer: Literal["thread"] = "thread"
    kind: Literal["hpsgd"] = "hpsgd"

    uses_replica: ClassVar[bool] = True
    has_stale_gradients: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True

    def _divisor(self, window: float, *, plain: bool) -> float:
        """Return the divisor of a sum over `window` iterations of each worker.

        plain: True if the optimizer is SGD.
        """
        rule = self.rate_by_window or ("linear" if plain else "constant")
        return math.pow(window, _GROWTH_LOST[rule])

    async def train(self, me: PeerContext) -> None:
        """Train until the run ends.

        The last iteration ends when all gradients of the worker are in the model.

        Args:
            me: the context of the worker.
        """
        model, accumulated = me.common(), me.accumulated()
        replica = model.replica()
        reduction: Reduction | None = None
        is_behind = False  # with commit: delayed, in the iteration after a commit

        def commit(reduced: Reduced) -> None:
            if reduced.members:
                weight, plain = reduced.weight, replica.takes_plain_steps
                divisor = me.workers * self._divisor(weight / reduced.members, plain=plain)
                if plain:
                    model.commit(reduced.total, divisor, weight)
                else:
                    model.commit(reduced.total, weight, weight, weight / divisor)

        def begin_reduction() -> Reduction | None:
            return me.begin_all_reduce(*accumulated.take()) if accumulated.count else None

        async def synchronise(iteration: Iteration | None = None) -> None:
            """Wait for the current synchronization, then for gradients accumulated during it."""
            nonlocal reduction
            if self.start_together and reduction is not None:
                me.meet(last=True)
            while reduction is not None:
                joined = me.now
                commit(await reduction.result())
                if iteration is not None:
                    iteration.note_wait(joined, reduction.began)
                reduction = begin_reduction()

        reduction = begin_reduction()  # the gradients that a checkpoint had
        async for iteration in iterations(me, replica):
            meeting = me.meet() if self.start_together else None
            if is_behind:
                replica.follow()
                is_behind = False
            full = self.window is not None and accumulated.count + 1 >= self.window
            if reduction is not None and (reduction.done or full):
                reduced = await reduction.result()
                iteration.note_wait(iteration.computed, reduction.began)
                reduction = None
                replica.follow()
                if self.commit == "delayed":  # the next gradient is computed at the old model
                    replica.stay()
                    is_behind = True
                commit(reduced)
            if iteration.gradient is not None:
                value = value_of(iteration.gradient)
                accumulated.add(value)
                if reduction is not None:
                    replica.step(value, iteration.number)
            if reduction is None:
                me.may_save(iteration.number + 1, accumulated)
                reduction = begin_reduction()
            if me.must_stop(iteration.number + 1):
                await synchronise(iteration)
            elif meeting is not None:
                waits_since = me.now
                await meeting.over()
                iteration.note_wait(waits_since, meeting.ended)
        await synchronise()
