"""Who of a run without servers is still in it, in the coordinator.

A worker that has left, or is lost, is missed only when the others wait for it: then, or at once
if it is lost, those who remain form a group without it. Who is there and does not come to an
all-reduce ends the run, after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from outpace.errors import RunError
from outpace.kernel import Alarm, Kernel
from outpace.real.net.messages import EnterAllReduce, GroupBroken, Regroup, WireLeave, WireMessage
from outpace.support.units import nanoseconds

FIND_OUT_S: Final = 30.0  # whom a group has lost


class Membership:
    """tell: reaches a worker, by name. timeout_s: for all to join an all-reduce."""

    def __init__(
        self,
        kernel: Kernel,
        workers: Iterable[str],
        timeout_s: float,
        tell: Callable[[str, WireMessage], None],
    ) -> None:
        self.lost: set[str] = set()
        self._kernel, self._timeout_s, self._tell = kernel, timeout_s, tell
        self._numbers = {name: number for number, name in enumerate(workers)}
        self._left: set[str] = set()
        self._joined = dict.fromkeys(self._numbers, 0)  # how many all-reduces
        self._generation, self._broken = 0, -1  # of groups: the last, and the last that broke
        self._group = list(self._numbers)  # who belongs to it
        self._alarm: Alarm | None = None  # for those who have not come to the newest all-reduce

    @property
    def here(self) -> list[str]:
        """Those who are still in it."""
        return [name for name in self._numbers if name not in self._left | self.lost]

    def take(self, name: str, message: WireMessage) -> bool:
        """Take in what is for it; is it?"""
        if isinstance(message, EnterAllReduce):
            self._join(name, message.number)
        elif isinstance(message, GroupBroken):
            self._broken = max(self._broken, message.generation)
            if message.generation == self._generation and not self._regroup():
                due = self._kernel.now + nanoseconds(FIND_OUT_S)
                self._kernel.call_at(due, self._require_regrouped, (name, message))
        elif isinstance(message, WireLeave):
            self._left.add(name)
            self._regroup_if_missed()
        else:
            return False
        return True

    def lose(self, name: str) -> None:
        """It is there no more, and did not say so."""
        self.lost.add(name)
        self._regroup()

    def _join(self, name: str, number: int) -> None:
        # Who begins the next one has the result of the last, so all had come to that.
        if number >= max(self._joined.values()):
            if self._alarm is not None:
                self._kernel.call_off(self._alarm)
            due = self._kernel.now + nanoseconds(self._timeout_s)
            self._alarm = self._kernel.set_alarm(due, partial(self._require_all, number))
        self._joined[name] = number + 1
        self._regroup_if_missed()

    def _regroup_if_missed(self) -> None:
        furthest = max(self._joined[name] for name in self.here) if self.here else 0
        missed = any(
            name not in self.here and self._joined[name] < furthest for name in self._group
        )
        if missed or self._broken == self._generation:
            self._regroup()

    def _regroup(self) -> bool:
        """Form a group without those who are gone, if there are any."""
        here = self.here
        if here == self._group or not here:
            return False
        self._generation += 1
        members = [self._numbers[name] for name in here]
        for name in self._group:
            self._tell(name, Regroup(self._generation, members))
        self._group = here
        return True

    def _require_all(self, number: int) -> None:
        self._alarm = None
        here = self.here
        late = [name for name in here if self._joined[name] <= number]
        if late and len(late) < len(here):
            waiting = ", ".join(name for name in here if name not in late)
            raise RunError(
                f"{', '.join(late)} did not come to all-reduce {number} within "
                f"{self._timeout_s:g} s (sync.timeout_s); {waiting} waited"
            )

    def _require_regrouped(self, known: tuple[str, GroupBroken]) -> None:
        name, broken = known
        if broken.generation == self._generation:
            raise RunError(f"{name} cannot reach the others: {broken.reason}")
