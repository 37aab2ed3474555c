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

        outpace.sync.Gossip()  # sync: {kind: gossip}

    Asynchronous decentralized parallel SGD (Lian, Zhang, Zhang and Liu, ICML 2018, algorithm 1)
    with every other worker as a neighbour: no worker waits for all others, and only gradients
    change the mean of the parameters. A gradient is computed at the parameters before the average,
    and changes the parameters after it.
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


class Pairing:
    """Decides which two workers average next, in virtual time and for real.

    A worker that asks gets a partner that is drawn from the workers still in the run. An average
    begins once both are free, in the order of requests.

    Args:
        first: number of the first average.

    Attributes:
        here: the workers that are still in the run.
        waiting: iteration and partner of a worker that waits, by worker.
        busy: the number of the average that a worker is in, by worker.
        count: number of averages that have begun since the run began.
    """

    def __init__(self, workers: int, seed: int, first: int = 0) -> None:
        self.here, self.busy, self.count = list(range(workers)), dict[int, int](), first
        self._seed = seed
        self.waiting: dict[int, tuple[int, int]] = {}

    def ask(self, seeker: int, iteration: int) -> bool:
        """Draw a partner; a waiting worker keeps its place. False: no other worker is left."""
        others = [worker for worker in self.here if worker != seeker]
        partner = partner_of(seeker, iteration, others, self._seed)
        if partner is None:
            self.waiting.pop(seeker, None)
        else:
            self.waiting[seeker] = iteration, partner
        return partner is not None

    def begin(self) -> list[tuple[int, int, int]]:
        """Begin the averages whose two workers are free; return number, seeker and partner."""
        begun = []
        for seeker, (_, partner) in list(self.waiting.items()):
            if self.busy.keys().isdisjoint((seeker, partner)):
                del self.waiting[seeker]
                self.busy[seeker] = self.busy[partner] = self.count
                begun.append((self.count, seeker, partner))
                self.count += 1
        return begun

    def leave(self, worker: int) -> list[int]:
        """Remove a worker; the workers that wait for it get other partners.

        Returns:
            The workers that waited for it and for which no partner is left.
        """
        self.here = [other for other in self.here if other != worker]
        waiting = [
            (seeker, iteration)
            for seeker, (iteration, partner) in self.waiting.items()
            if partner == worker
        ]
        return [seeker for seeker, iteration in waiting if not self.ask(seeker, iteration)]


def partner_of(worker: int, iteration: int, others: Sequence[int], seed: int) -> int | None:
    """Return a random worker of `others` to average with in an iteration; None: there is none."""
    if not others:
        return None
    return others[int(generator(seed, "partner", worker, iteration).integers(len(others)))]
