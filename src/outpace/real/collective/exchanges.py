"""A worker's part in averages of two over torch.distributed (gossip).

With each of the others it has a line of its own: one that dies breaks no other line. Both give
what they have when they are told to, and change what they have when it is over by half of the
difference: a step taken meanwhile is not lost, and what one gains the other loses, so that the
mean of both stays.

No worker leaves with an average under way, unless it is ended early: then it, or its partner, may
keep the half that the other does not take. If the partner goes, see `pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import torch

from outpace.blocks.block import Phantom, Value, whole
from outpace.kernel import Future, Kernel
from outpace.real.collective.communication_thread import CommunicationThread, Done
from outpace.real.collective.group import Group, GroupSettings
from outpace.real.collective.waker import Waker
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import (
    AverageEnded,
    AverageFailed,
    CancelAverage,
    GroupBroken,
    NoPartnerLeft,
    SeekPartner,
    StartAverage,
    WireMessage,
)
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import worker_name

_LOOK_EVERY_S: Final = 0.1  # whether the run ends early


class PairwiseExchanges:
    """Belongs to the thread of the training. me: a worker, of which these are the others.

    read: its parameters as they are, which nobody will change. change: add this to them. tell:
    the coordinator. ended: told of each that this worker had asked for, and that came about.
    """

    def __init__(
        self,
        kernel: Kernel,
        clock: RealClock,
        me: int,
        others: Iterable[int],
        settings: GroupSettings,
        *,
        read: Callable[[], Value],
        change: Callable[[torch.Tensor], None],
        tell: Callable[[WireMessage], None],
        ended: Callable[[PendingExchange], None],
    ) -> None:
        self._kernel, self._clock, self._me = kernel, clock, me
        self._read, self._change, self._tell, self._told_of = read, change, tell, ended
        waker = Waker(clock)
        self._threads: dict[int, CommunicationThread] = {}
        for other in others:
            low, high = sorted((me, other))
            group = partial(Group, settings, f"{low} and {high}", [low, high], me)
            self._threads[other] = CommunicationThread(waker, group, partial(self._broken, other))
        self._sought: PendingExchange | None = None
        self._meet: StartAverage | None = None  # the average that is under way

    async def connect(self) -> None:
        """Wait until all others are reached."""
        for other, line in self._threads.items():
            met = Future[None](self._kernel, worker_name(other))
            line.do(partial(_tell_that, met))
            await met

    def begin(self, iteration: int) -> PendingExchange:
        """See `PeerContext.begin_exchange`."""
        assert self._sought is None, "the last one is not over"
        pair = self._sought = PendingExchange(self._kernel, iteration, self._clock.now)
        self._tell(SeekPartner(iteration))
        return pair

    def take(self, message: StartAverage | CancelAverage | NoPartnerLeft) -> None:
        """What the coordinator says."""
        if isinstance(message, StartAverage):
            self._begin(message)
        elif isinstance(message, NoPartnerLeft):
            now = self._clock.now
            self._end(now, now)
        elif self._meet is not None and self._meet.number == message.number:
            self._give_up(self._meet)

    def leave(self, *, in_order: Callable[[], bool]) -> None:
        """Take part no more, as soon as none is under way; at once if not `in_order`."""
        while self._meet is not None and in_order():
            self._clock(self._clock.now + nanoseconds(_LOOK_EVERY_S))
        for line in self._threads.values():
            line.abandon()

    def join(self, limit_s: float) -> None:
        """After `leave`, wait until what it has begun is over."""
        for line in self._threads.values():
            line.join(limit_s)

    def _begin(self, meet: StartAverage) -> None:
        self._meet = meet
        mine = whole(self._read())
        if isinstance(mine, Phantom):  # travels as bytes
            job = partial(self._swap, meet, torch.zeros(mine.nbytes, dtype=torch.uint8), False)
        else:
            job = partial(self._swap, meet, mine, True)
        self._threads[self._other(meet)].do(job)

    def _other(self, meet: StartAverage) -> int:
        return meet.partner if meet.seeker == self._me else meet.seeker

    def _swap(self, meet: StartAverage, mine: torch.Tensor, changes: bool, group: Group) -> Done:
        """In the thread of the line."""
        theirs = torch.empty_like(mine)
        group.swap(mine, theirs, self._other(meet), 0)
        ended = self._clock.now
        change = theirs.sub_(mine).div_(2) if changes else None
        return partial(self._finish, meet, mine.nbytes, change, ended)

    def _finish(
        self, meet: StartAverage, nbytes: int, change: torch.Tensor | None, ended: Time
    ) -> None:
        if change is not None:
            self._change(change)
        self._meet = None
        self._tell(AverageEnded(meet.number))
        if meet.seeker == self._me:
            pair = self._end(meet.began, ended)
            pair.number, pair.nbytes = meet.number, nbytes
            self._told_of(pair)

    def _end(self, began: Time, ended: Time) -> PendingExchange:
        pair, self._sought = self._sought, None
        assert pair is not None
        pair.began = min(max(pair.joined, began), ended)  # perhaps by the clock of another machine
        pair.ended = ended
        pair.arrived.set(None)
        return pair

    def _give_up(self, meet: StartAverage) -> None:
        """Whatever still comes of it; it is with somebody who is never met again."""
        self._threads.pop(self._other(meet)).abandon()
        self._meet = None
        self._tell(AverageEnded(meet.number))
        if meet.seeker == self._me:
            assert self._sought is not None
            self._tell(SeekPartner(self._sought.iteration))

    def _broken(self, other: int, reason: str) -> None:
        text = f"{worker_name(other)}: {reason[:1000]}"
        meet = self._meet
        if meet is None:  # they have not even met
            self._tell(GroupBroken(0, text))
        else:
            self._tell(AverageFailed(meet.number, text))


def _tell_that(met: Future[None], _: Group) -> Done:
    return partial(met.set, None)


class PendingExchange:
    """An average that this worker has asked for. Implements `Exchange`."""

    def __init__(self, kernel: Kernel, iteration: int, joined: Time) -> None:
        self.iteration, self.joined = iteration, joined
        self.began: Time
        self.ended: Time
        self.number: int
        self.nbytes: int  # that each sends
        self.arrived = Future[None](kernel, f"the average beside iteration {iteration}")

    async def over(self) -> None:
        await self.arrived
