"""DiLoCo: workers train separately; an outer optimizer takes a step along their mean change.

θ are the common parameters, and θ_i are the parameters of worker i after n steps from θ. The outer
gradient is the mean of θ − θ_i (Douillard et al. 2023, algorithm 1).

With overlap, a worker continues from θ_i while the mean is computed. The idea is from Streaming
DiLoCo (Douillard et al. 2025), which blends θ_i with the new θ; here nothing is blended or lost. At
the end of the first step after the mean has arrived, θ takes its outer step, and the worker
continues from

    θ_i ← θ + (θ_i − the value of θ_i when its outer gradient was sent)

So each inner step is in exactly one outer gradient, the next one that is sent. With a plain outer
step of length 1 this is CoCoD-SGD (Shen et al., IJCAI 2019). Outer gradients are sent every n
steps, as without overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.blocks.block import Value, value_of
from outpace.optim import Optimizer, Sgd
from outpace.support.checks import Decay, Positive, Steps
from outpace.support.units import Time
from outpace.sync.parameter_block import plus
from outpace.sync.peers.context import PeerContext, Reduction, Unsent
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.strategy import AllReduceStrategy


@dataclass(frozen=True, slots=True)
class DiLoCo(AllReduceStrategy):
    """Each worker takes n steps with the run's optimizer; their mean change is an outer gradient.

        outpace.sync.DiLoCo(every=50)  # sync: {kind: diloco, every: 50}

    Douillard et al., DiLoCo: distributed low-communication training of language models, 2023,
    algorithm 1. The paper's inner optimizer is AdamW, and its outer optimizer is SGD with Nesterov
    momentum.

    Args:
        every: n, the number of steps from one outer gradient to the next.
        outer_lr: learning rate of the outer optimizer.
        outer_momentum: Nesterov momentum of the outer optimizer.
        overlap: True: workers take further steps while the outer gradient is averaged.

    Raises:
        ValueError: for numbers out of range.
    """

    every: Steps
    outer_lr: Positive = 0.7
    outer_momentum: Decay = 0.9
    overlap: bool = False
    kind: Literal["diloco"] = "diloco"

    has_own: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True

    def common_optimizer(self, optimizer: Optimizer) -> Optimizer:
        momentum = self.outer_momentum
        return Sgd(lr=self.outer_lr, momentum=momentum, nesterov=momentum > 0)

    async def train(self, me: PeerContext) -> None:
        model, mine = me.common(), me.own()
        given: Value = mine.read()
        reduction: Reduction | None = None
        steps, gradients = me.unsent  # steps since the last outer step began

        def begin_reduction() -> Reduction:
            nonlocal given, steps, gradients
            given, weight = mine.read(), gradients
            steps = gradients = 0
            return me.begin_all_reduce(plus(model.read(), -1, given), weight)

        async def outer_step(reduction: Reduction) -> tuple[Time, Time]:
            """Wait for the mean; return the times when the wait began and when all had joined."""
            before = me.now
            reduced = await reduction.result()
            since = plus(mine.read(), -1, given)
            model.commit(reduced.mean, 1, reduced.weight)
            mine.replace(plus(since, 1, model.read()))
            return before, reduction.began

        if steps >= self.every:  # a checkpoint was taken before these steps were sent
            reduction = begin_reduction()
        async for iteration in iterations(me, mine):
            if iteration.gradient is not None:
                mine.step(value_of(iteration.gradient), iteration.number)
                gradients += 1
            steps += 1
            last = me.must_stop(iteration.number + 1)
            due = steps == self.every or last
            if reduction is not None and (due or reduction.done):
                iteration.note_wait(*await outer_step(reduction))
                reduction = None
                me.may_save(iteration.number + 1, unsent=Unsent(steps, gradients))
            if due:
                reduction = begin_reduction()
            if reduction is not None and (last or not self.overlap):
                iteration.note_wait(*await outer_step(reduction))
                reduction = None
                if not self.overlap:
                    me.may_save(iteration.number + 1)
        if reduction is not None:
            await outer_step(reduction)
        if steps:
            await outer_step(begin_reduction())
