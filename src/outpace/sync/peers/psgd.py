"""PSGD: every worker trains alone; the result is the mean of their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.blocks.block import value_of
from outpace.sync.peers.context import PeerContext
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.strategy import PeerStrategy


@dataclass(frozen=True, slots=True)
class Psgd(PeerStrategy):
    """Parallel SGD without communication: no strategy that communicates can be faster.

        outpace.sync.Psgd()  # sync: {kind: psgd}

    Zinkevich, Weimer, Smola and Li, Parallelized stochastic gradient descent, NIPS 2010.
    """

    kind: Literal["psgd"] = "psgd"

    has_common: ClassVar[bool] = False
    has_own: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True
    saved_apart: ClassVar[bool] = True

    async def train(self, me: PeerContext) -> None:
        mine = me.own()
        async for iteration in iterations(me, mine):
            if iteration.gradient is not None:
                mine.step(value_of(iteration.gradient), iteration.number)
            me.may_save(iteration.number + 1)
