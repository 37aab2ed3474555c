"""The averages and meetings of a worker without servers, and its computation during them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from outpace.blocks.block import Block
from outpace.kernel import Future
from outpace.record.recorder import Average, Recorder
from outpace.support.units import Time
from outpace.sync.checkpoint.workers import Restored
from outpace.sync.peers.context import AccumulatedGradient

BEGINNING: Final = Restored()
AccumulatedT = TypeVar("AccumulatedT", bound=AccumulatedGradient)


@dataclass(slots=True, eq=False)
class Pending:
    """A worker's part in an average or a meeting. This class itself implements `Meeting`.

    Attributes:
        ended: time when all workers had joined; set at this time.
    """

    joined: Time
    arrived: Future[None]
    ended: Time = field(init=False)

    async def over(self) -> None:
        await self.arrived

    def end(self, ended: Time) -> None:
        """Note that the average or meeting is over."""
        self.ended = ended
        self.arrived.set(None)


@dataclass(slots=True, eq=False)
class PendingReduction(Pending):
    """A worker's part in an all-reduce. Each runtime has a subclass that implements `Reduction`.

    Attributes:
        value: the worker's value, until it is added up; None: it gives no value.
        weight: number of iterations in the value.
        began: time when all workers had joined; set at this time.
        members: the workers in the all-reduce; set at the same time.
    """

    number: int
    value: Block | None
    weight: int
    began: Time = field(init=False)
    members: list[int] = field(init=False)


@dataclass(slots=True, eq=False)
class PendingExchange(Pending):
    """An average of two workers that one has asked for. Implements `Exchange` and `Average`.

    It is over when both workers have the mean, or if no partner is left.

    Attributes:
        members: the worker that asked, and its partner.
    """

    weight: ClassVar[int] = 1  # number of iterations in it

    iteration: int
    began: Time = field(init=False)
    number: int = field(init=False)
    members: list[int] = field(init=False)


class PeerProgress:
    """What a worker has computed since it last joined an average, and its computation during one.

    Attributes:
        restored: state of the worker in addition to its models, from a checkpoint.
        versions: versions of the common model for the gradients that no all-reduce has included
            yet.
        iteration: the last iteration that was computed; -1: none was.
        joined_after: the iteration after or during which the worker joined an average.
    """

    def __init__(self, worker: int, recorder: Recorder, restored: Restored = BEGINNING) -> None:
        self._worker, self._recorder, self.restored = worker, recorder, restored
        self.versions: list[int] = []
        self.iteration = self.joined_after = -1
        self._spans: list[tuple[Time, Time]] | None = None  # spans of computation during an average
        self._since: Time | None = None  # start of the running computation

    def accumulated(self, empty: AccumulatedT) -> AccumulatedT:
        """Return this sum with the gradients that the worker had accumulated at a checkpoint."""
        before = self.restored.accumulated
        if before is not None:
            empty.restore(before.parts, before.count)
            self.versions = [version for _, version in before.pushes]
        return empty

    def computes(self, now: Time) -> None:
        """Note that the worker begins to compute."""
        self._since = now

    def stops(self) -> None:
        """Note that the worker leaves within a computation, which does not count."""
        self._since = None

    def has_computed(self, now: Time, iteration: int, version: int | None) -> None:
        """Note that the worker has computed this iteration.

        version: version of the common model at which the gradient was computed; None: there is no
        gradient.
        """
        assert self._since is not None
        if self._spans is not None:
            self._spans.append((self._since, now))
        self._since, self.iteration = None, iteration
        if version is not None:
            self.versions.append(version)

    def joins_all_reduce(self) -> list[int]:
        """Note that the worker joins an all-reduce; return the `versions` of its gradients."""
        self._spans, self.joined_after = [], self.iteration
        given, self.versions = self.versions, []
        return given

    def joins_exchange(self, iteration: int) -> None:
        """Note that the worker has joined an average of two workers.

        Args:
            iteration: the worker's last finished iteration, or the iteration under way.
        """
        self._spans, self.joined_after = [], iteration

    def averaged(self, average: Average) -> None:
        """Record a finished average, and how long the worker computed during it."""
        spans, self._spans = self._spans or [], None
        joined, ended = average.joined, average.ended
        if self._since is not None:
            spans.append((self._since, ended))
        computing = sum(max(0, min(end, ended) - max(begin, joined)) for begin, end in spans)
        self._recorder.averaged(self._worker, self.joined_after, average, computing)
