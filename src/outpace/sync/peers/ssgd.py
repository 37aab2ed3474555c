"""Synchronous SGD by all-reduce: all workers take the same step, and wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.sync.peers.context import PeerContext
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.strategy import BufferAveragingStrategy


@dataclass(frozen=True, slots=True)
class Ssgd(BufferAveragingStrategy):
    """Averages the gradients of all workers in every iteration.

        outpace.sync.Ssgd(all_reduce="tree")  # sync: {kind: ssgd, all_reduce: tree}

    With deterministic sums it is bitwise equal to `bsp` with servers.
    """

    kind: Literal["ssgd"] = "ssgd"

    lockstep: ClassVar[bool] = True
    averages_gradients: ClassVar[bool] = True
    is_ddp: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True

    async def train(self, me: PeerContext) -> None:
        model = me.common()
        async for iteration in iterations(me, model):
            reduction = me.begin_all_reduce(iteration.gradient)
            reduced = await reduction.result()
            if reduced.members:
                model.commit(reduced.mean, 1, reduced.weight)
            iteration.note_wait(iteration.computed, reduction.began)
            me.may_save(iteration.number + 1)
