"""Who averages with whom in a run of gossip, in the coordinator.

Who asks for it is given a partner, drawn as in virtual time among those who are still there. The
two are told to meet once both are free, first come, first served. Each says when it is over for
it, which frees it; so an average waits for none but its two workers, and they for no other one.

If one of them goes in between, the other is told to give it up, unless it is over; if that one had
asked for it, it asks again. Between workers that stay, or leave in order, an average comes about
on both sides or on neither (see `exchanges`). Who is lost in the middle of one may have its half
of it while the other has not, or the other way round, never twice: what is lost is at most the
half of one difference, besides all that the lost worker had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.membership import FIND_OUT_S, Membership
from outpace.real.net.messages import (
    AverageEnded,
    AverageFailed,
    CancelAverage,
    NoPartnerLeft,
    SeekPartner,
    StartAverage,
    WireLeave,
    WireMessage,
)
from outpace.support.units import nanoseconds
from outpace.sync.peers.gossip import partner_of

_NEVER_S: Final = 1e9  # nobody joins an all-reduce


class Pairs(Membership):
    """Here nobody misses who has left or is lost: no new group is formed of the others."""

    def __init__(
        self,
        kernel: Kernel,
        workers: Iterable[str],
        seed: int,
        tell: Callable[[str, WireMessage], None],
    ) -> None:
        super().__init__(kernel, workers, _NEVER_S, tell)
        self._names = list(self._numbers)
        self._seed = seed
        self._waiting: dict[str, tuple[int, str]] = {}  # who asked: beside which, with whom
        self._busy: dict[str, int] = {}  # in which average
        self._count = 0

    def take(self, name: str, message: WireMessage) -> bool:
        if isinstance(message, SeekPartner):
            if name in self.here:
                self._draw(name, message.iteration)
                self._start()
        elif isinstance(message, AverageEnded):
            if self._busy.get(name) == message.number:
                del self._busy[name]
                self._start()
        elif isinstance(message, AverageFailed):
            due = self._kernel.now + nanoseconds(FIND_OUT_S)
            self._kernel.call_at(due, self._require_over, (name, message))
        else:
            taken = super().take(name, message)
            if isinstance(message, WireLeave):
                self._part(name)
            return taken
        return True

    def lose(self, name: str) -> None:
        self.lost.add(name)
        self._part(name)

    def _draw(self, seeker: str, iteration: int) -> None:
        """A partner for it; where somebody waits already, it keeps its place."""
        others = [self._numbers[name] for name in self.here if name != seeker]
        partner = partner_of(self._numbers[seeker], iteration, others, self._seed)
        if partner is not None:
            self._waiting[seeker] = iteration, self._names[partner]
        else:
            self._waiting.pop(seeker, None)
            self._tell(seeker, NoPartnerLeft())

    def _start(self) -> None:
        """Those that can."""
        for seeker, (_, partner) in list(self._waiting.items()):
            if not self._busy.keys().isdisjoint((seeker, partner)):
                continue
            del self._waiting[seeker]
            numbers = self._numbers[seeker], self._numbers[partner]
            for name in (seeker, partner):
                self._busy[name] = self._count
                self._tell(name, StartAverage(self._count, *numbers, self._kernel.now))
            self._count += 1

    def _part(self, name: str) -> None:
        """It takes part in none any more."""
        number = self._busy.pop(name, None)
        self._waiting.pop(name, None)
        for other, busy_with in self._busy.items():
            if busy_with == number:
                self._tell(other, CancelAverage(busy_with))
        for seeker, (iteration, partner) in list(self._waiting.items()):
            if partner == name:
                self._draw(seeker, iteration)
        self._start()

    def _require_over(self, known: tuple[str, AverageFailed]) -> None:
        name, missed = known
        if self._busy.get(name) == missed.number:
            raise RunError(f"{name} cannot reach {missed.reason}")
