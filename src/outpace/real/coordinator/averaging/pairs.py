"""Draws the two workers that average next in a run of gossip.

A worker that asks is given a partner, drawn as in virtual time from the workers that are still
there. Both are told to start once both are free, first come, first served. Each says when it has
ended its part, which frees it, so an average waits for its two workers only.

If one of the two goes in between, the other is told to give the average up, unless it has ended;
if the other had asked for it, it asks again. Between workers that stay, or leave in order, an
average comes about on both sides or on neither (see `exchanges`). If a worker is lost in the
middle of one, only one side may have its half of it, never twice: at most half of one difference
is lost, besides what the lost worker had.

After an average each of the two keeps the model of the other (see `exchanges`). So the coordinator
knows who has the newest model of a worker, and has it given to a process that takes that worker's
place. If the other one is in an average with the lost worker, what it says at its end counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from outpace.kernel import Kernel
from outpace.real.coordinator.averaging.membership import Roster, Tell, end_if_still
from outpace.real.net.peer_messages import (
    AverageEnded,
    AverageFailed,
    BeginAnew,
    CancelAverage,
    ConnectPair,
    GroupBroken,
    NoPartnerLeft,
    SeekPartner,
    StartAverage,
)
from outpace.sync.messages import Leave, WireMessage
from outpace.sync.peers.gossip import partner_of

_NONE: Final = ""  # in place of a worker that is gone


class Pairs:
    """The averages of two.

    tell: sends a message to a worker. first: number of the first average.
    """

    def __init__(
        self, kernel: Kernel, workers: Iterable[str], seed: int, tell: Tell, first: int = 0
    ) -> None:
        self._kernel, self._seed, self._tell = kernel, seed, tell
        self._roster = Roster(workers)
        self._names = list(self._roster.numbers)
        self._waiting: dict[str, tuple[int, str]] = {}  # seeker: its iteration, its partner
        self._busy: dict[str, int] = {}  # worker: its average
        self._count = first
        self._when_idle: list[Callable[[], None]] = []
        self._members: dict[int, tuple[str, str]] = {}  # of the averages that are under way
        self._giving: set[int] = set()  # those of them in which one gives the other a model
        self._joining: set[str] = set()  # workers that took others' places, and have no model yet
        self._unserved: set[str] = set()  # those of them that are not being given one
        # By lost worker: its averages of which the other one has not said how they ended.
        self._unclear: dict[str, set[int]] = {}
        # By worker: its last average, and the other one in it, which has its model.
        self._keepers: dict[str, tuple[int, str]] = {}
        self._forget: dict[str, set[str]] = {}  # by worker: what it keeps and need not

    @property
    def averages(self) -> int:
        """Averages that have begun since the run began."""
        return self._count

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call this as soon as no average is under way; until then none begins.

        What is sent to workers in `action` reaches them after an average that has changed both
        models, and before the next one.
        """
        self._when_idle.append(action)
        self._start()

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a worker; False if it is not about averages."""
        if isinstance(message, SeekPartner):
            if name in self._roster.here:
                self._draw(name, message.iteration)
                self._start()
        elif isinstance(message, AverageEnded):
            if self._busy.get(name) == message.number:
                del self._busy[name]
                self._ended(name, message.number, has=message.has)
                self._start()
        elif isinstance(message, AverageFailed):
            why = f"{name} cannot reach {message.reason}"
            end_if_still(self._kernel, lambda: self._busy.get(name) == message.number, why)
        elif isinstance(message, GroupBroken):  # while it connects to the others
            changes, why = self._roster.changes, f"{name} cannot reach {message.reason}"
            end_if_still(self._kernel, lambda: self._roster.changes == changes, why)
        elif isinstance(message, Leave):
            self.lose(name)
        else:
            return False
        return True

    def lose(self, name: str) -> None:
        """This worker has left or is gone: it takes part in no further average."""
        self._roster.remove(name)
        self._joining.discard(name)
        self._unserved.discard(name)
        number = self._busy.pop(name, None)
        self._waiting.pop(name, None)
        self._unclear.pop(name, None)
        self._forget.pop(name, None)
        for worker, (last, keeper) in self._keepers.items():
            if keeper == name:
                self._keepers[worker] = last, _NONE
        if number is not None:
            self._is_clear(number)  # the worker cannot say any more how it ended
        for other, busy_with in self._busy.items():
            if busy_with == number:
                self._tell(other, CancelAverage(busy_with))
            if name in self._members[busy_with] and busy_with not in self._giving:
                self._unclear.setdefault(name, set()).add(busy_with)
        for seeker, (iteration, partner) in list(self._waiting.items()):
            if partner == name:
                self._draw(seeker, iteration)
        self._start()

    def _draw(self, seeker: str, iteration: int) -> None:
        """Draw a partner for it; a seeker that waits already keeps its place."""
        numbers = self._roster.numbers
        here = [name for name in self._roster.here if name not in self._joining]
        others = [numbers[name] for name in here if name != seeker]
        partner = partner_of(numbers[seeker], iteration, others, self._seed)
        if partner is not None:
            self._waiting[seeker] = iteration, self._names[partner]
        else:
            self._waiting.pop(seeker, None)
            self._tell(seeker, NoPartnerLeft())

    def _start(self) -> None:
        """Start the averages whose two workers are free."""
        if self._when_idle:
            if self._busy:
                return
            actions, self._when_idle = self._when_idle, []
            for action in actions:
                action()
        self._serve()
        for seeker, (_, partner) in list(self._waiting.items()):
            if not self._busy.keys().isdisjoint((seeker, partner)):
                continue
            del self._waiting[seeker]
            self._begin(seeker, partner, gives=False)

    def _begin(self, seeker: str, partner: str, *, gives: bool) -> None:
        all_numbers, number = self._roster.numbers, self._count
        numbers = all_numbers[seeker], all_numbers[partner]
        self._members[number] = seeker, partner
        if gives:
            self._giving.add(number)
        for name in (seeker, partner):
            self._busy[name] = number
            forget = sorted(all_numbers[each] for each in self._forget.pop(name, ()))
            start = StartAverage(number, *numbers, self._kernel.now, gives, forget)
            self._tell(name, start)
        self._count += 1

    def _ended(self, name: str, number: int, *, has: bool) -> None:
        """A worker has ended its part in an average. has: False if it has given it up."""
        seeker, partner = self._members[number]
        other = partner if name == seeker else seeker
        if other in self._unclear:
            self._is_clear(number)
        if has and number not in self._giving:
            self._keeps(name, other, number)
        if number not in self._busy.values():
            del self._members[number]
            self._giving.discard(number)

    def _is_clear(self, number: int) -> None:
        """Wait no more for what a worker says about this average."""
        for lost, unclear in list(self._unclear.items()):
            unclear.discard(number)
            if not unclear:
                del self._unclear[lost]

    def _keeps(self, keeper: str, worker: str, number: int) -> None:
        """A worker has the newest model of another one, after this average."""
        before = self._keepers.get(worker)
        if before is not None and before[0] > number:
            return
        if before is not None and before[1] != keeper:
            self._forget.setdefault(before[1], set()).add(worker)
        self._forget.get(keeper, set()).discard(worker)
        self._keepers[worker] = number, keeper

    # -- workers that take the places of others --------------------------------------------

    def can_give(self, names: Collection[str], besides: Collection[str]) -> bool:
        """True if others than these have the newest models of all workers of these names."""
        here = set(self._roster.here) - self._joining - set(besides)
        needed = {self._keepers[name][1] for name in names if name in self._keepers}
        return bool(here) and needed <= here

    def keeps(self, name: str) -> bool:
        """True if another worker has kept the newest model of this one."""
        return name in self._keepers

    def join(self, name: str, generation: int) -> None:
        """A new process takes the place of a worker that was lost."""
        numbers = self._roster.numbers
        for other in self._roster.here:
            self._tell(other, ConnectPair(numbers[name], generation))
            self._tell(name, ConnectPair(numbers[other], generation))
        self._roster.add(name)
        self._joining.add(name)
        self._unserved.add(name)
        self._start()

    def has_joined(self, name: str) -> None:
        """A worker that took another one's place has its model."""
        self._joining.discard(name)

    def _serve(self) -> None:
        """Have the workers that have no model given theirs, if those that keep it are free."""
        for name in sorted(self._unserved - self._unclear.keys()):
            if name not in self._keepers:
                self._unserved.remove(name)
                self._tell(name, BeginAnew())
                continue
            _, keeper = self._keepers[name]
            if keeper in self._roster.here and keeper not in self._busy:
                self._unserved.remove(name)
                self._begin(name, keeper, gives=True)
