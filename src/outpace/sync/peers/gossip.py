"""AD-PSGD: while it computes a gradient, a worker averages its parameters with one other worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.blocks.block import value_of
from outpace.support.randomness import generator
from outpace.sync.peers.context import Exchange, PeerContext
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.strategy import PeerStrategy


@dataclass(frozen=True, slots=True)
class Gossip(PeerStrategy):
    """Averages with one random worker while each gradient is computed.

    Asynchronous decentralized parallel SGD (Lian, Zhang, Zhang and Liu, ICML 2018, algorithm 1)
    where every other worker is a neighbour: no worker waits for all others, and only gradients
    change the mean of the parameters. A gradient is computed at the parameters before the average
    and changes those after it.
    """

    kind: Literal["gossip"] = "gossip"

    has_common: ClassVar[bool] = False
    has_own: ClassVar[bool] = True
    exchanges: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True
    saved_apart: ClassVar[bool] = True

    async def train(self, me: PeerContext) -> None:
        mine = me.own()
        exchange: Exchange

        def begin_exchange(iteration: int) -> None:
            nonlocal exchange
            exchange = me.begin_exchange(iteration)

        async for iteration in iterations(me, mine, before=begin_exchange):
            await exchange.over()
            if iteration.gradient is not None:
                mine.step(value_of(iteration.gradient), iteration.number)
            iteration.note_wait(iteration.computed, exchange.began)
            me.may_save(iteration.number + 1)


def partner_of(worker: int, iteration: int, others: Sequence[int], seed: int) -> int | None:
    """Return the random worker of `others` to average with in an iteration; None: no others."""
    if not others:
        return None
    return others[int(generator(seed, "partner", worker, iteration).integers(len(others)))]
