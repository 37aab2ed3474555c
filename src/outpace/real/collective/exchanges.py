"""A worker's part in pairwise averaging over torch.distributed (gossip).

Each worker has one communication thread and one process group for each other worker, so that a
worker that dies breaks only its own groups. When the coordinator starts an average, both partners
send their parameters, and each then adds half of the difference to its own. A step taken in the
meantime is not lost, and the mean of both partners does not change.

A worker does not leave during an average, unless the run is ended early: then it is possible that
only one of the partners has changed its parameters. For the loss of a partner, see `pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

import torch

from outpace.blocks.block import Phantom, Value, whole
from outpace.engine.peers import PendingExchange
from outpace.kernel import Future, Kernel
from outpace.real.collective.communication_thread import CommunicationThread
from outpace.real.collective.group import Group, GroupSettings
from outpace.real.net.clock import RealClock
from outpace.real.net.peer_messages import (
    CancelAverage,
    GroupBroken,
    StartAverage,
    TakePart,
)
from outpace.real.net.waker import Waker
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import WireMessage, worker_name

OfPairs: TypeAlias = StartAverage | CancelAverage
# Half of the difference of two workers, and the times between which the communication thread worked
# on it.
_Swapped: TypeAlias = tuple[torch.Tensor | None, tuple[Time, Time]]

_LOOK_EVERY_S: Final = 0.1  # interval of checks for an early end of the run


class PairwiseExchanges:
    """The averages of worker `me` with `others`. Use it only in the training thread.

    Args:
        read: returns a copy of the worker's parameters.
        change: adds a tensor to the worker's parameters.
        tell: sends a message to the coordinator.
        ended: called with each finished average that this worker asked for, the bytes that each
            partner sent, and the times between which the communication thread worked on it.
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
        ended: Callable[[PendingExchange, int, tuple[Time, Time]], None],
    ) -> None:
        self._kernel, self._clock, self._me = kernel, clock, me
        self._read, self._change, self._tell, self._on_ended = read, change, tell, ended
        self._waker = Waker(clock)
        self._threads: dict[int, CommunicationThread] = {}
        for other in others:
            low, high = sorted((me, other))
            group = partial(Group, settings, f"{low} and {high}", [low, high], me)
            broken = partial(self._broken, other)
            self._threads[other] = CommunicationThread(self._waker, group, broken)
        self._sought: PendingExchange | None = None
        self._under_way: StartAverage | None = None

    async def connect(self) -> None:
        """Wait until this worker is connected to all others."""
        for other, thread in self._threads.items():
            met = Future[None](self._kernel, worker_name(other))
            thread.do(lambda group: None, met.set)
            await met

    def begin(self, iteration: int) -> PendingExchange:
        """See `PeerContext.begin_exchange`."""
        assert self._sought is None, "the last one is not over"
        arrived = Future[None](self._kernel, f"the average during iteration {iteration}")
        pair = self._sought = PendingExchange(self._clock.now, arrived, iteration)
        self._tell(TakePart("pair", iteration))
        return pair

    def take(self, message: OfPairs) -> None:
        """Handle a message from the coordinator."""
        if isinstance(message, StartAverage):
            self._begin(message)
        elif message.number is None:
            now = self._clock.now
            self._end(now, now)
        elif self._under_way is not None and self._under_way.number == message.number:
            self._give_up(self._under_way)

    def leave(self, *, in_order: Callable[[], bool] = lambda: False) -> None:
        """Begin no more averages. Wait for the current average while `in_order()` is true."""
        while self._under_way is not None and in_order():
            self._clock(self._clock.now + nanoseconds(_LOOK_EVERY_S))
        for thread in self._threads.values():
            thread.abandon()

    def join(self, limit_s: float) -> None:
        """Wait, after `leave`, until the threads have ended."""
        for thread in self._threads.values():
            thread.join(limit_s)

    def _begin(self, meet: StartAverage) -> None:
        self._under_way = meet
        mine = whole(self._read())
        if isinstance(mine, Phantom):  # the values are sent as bytes
            mine = torch.zeros(mine.nbytes, dtype=torch.uint8)
        job, done = partial(self._swap, meet, mine), partial(self._finish, meet, mine.nbytes)
        self._threads[self._other(meet)].do(job, done)

    def _other(self, meet: StartAverage) -> int:
        return meet.partner if meet.seeker == self._me else meet.seeker

    def _swap(self, meet: StartAverage, mine: torch.Tensor, group: Group) -> _Swapped:
        """Swap parameters with the partner; called in the communication thread."""
        theirs, begun = torch.empty_like(mine), self._clock.now
        group.swap(mine, theirs, self._other(meet))
        span = begun, self._clock.now
        has_values = mine.is_floating_point()  # otherwise they represent a phantom
        return theirs.sub_(mine).div_(2) if has_values else None, span

    def _finish(self, meet: StartAverage, nbytes: int, swapped: _Swapped) -> None:
        change, span = swapped
        if change is not None:
            self._change(change)
        self._under_way = None
        self._tell(TakePart("averaged", meet.number))
        if meet.seeker == self._me:
            pair = self._end(meet.began, span[1])
            pair.number, pair.members = meet.number, [self._me, meet.partner]
            self._on_ended(pair, nbytes, span)

    def _end(self, began: Time, ended: Time) -> PendingExchange:
        pair, self._sought = self._sought, None
        assert pair is not None
        pair.began = min(max(pair.joined, began), ended)  # the clock of another machine may differ
        pair.end(ended)
        return pair

    def _give_up(self, meet: StartAverage) -> None:
        """Cancel an average whose partner is lost, and ask for another partner."""
        self._threads[self._other(meet)].abandon()
        self._under_way = None
        self._tell(TakePart("averaged", meet.number))
        if meet.seeker == self._me:
            assert self._sought is not None
            self._tell(TakePart("pair", self._sought.iteration))

    def _broken(self, other: int, reason: str) -> None:
        text = f"{worker_name(other)}: {reason[:1000]}"
        meet = self._under_way  # None: the workers are not connected yet
        self._tell(GroupBroken(0, text, None if meet is None else meet.number))
