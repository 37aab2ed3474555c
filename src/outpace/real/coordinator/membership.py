"""Decides which workers form the group of the next all-reduces.

When a worker leaves in order, the others form a group without it as soon as they wait for it. When
a worker is lost while the run ends, the others form such a group at once. A worker that is present
but does not join an all-reduce in time ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from outpace.errors import RunError
from outpace.kernel import Alarm, Kernel
from outpace.real.net.peer_messages import GroupBroken, Regroup, TakePart
from outpace.support.units import nanoseconds
from outpace.sync.messages import Leave, WireMessage

Tell: TypeAlias = Callable[[str, WireMessage], None]

_FIND_OUT_S: Final = 30.0  # seconds for the coordinator to learn which worker is lost


def end_if_still(kernel: Kernel, still: Callable[[], bool], why: str) -> None:
    """End the run after 30 s if `still()` is true; until then the coordinator finds lost workers.

    Args:
        kernel: the kernel of the coordinator.
        still: returns True if the problem persists, without a lost worker that explains it.
        why: text of the error.
    """

    def decide(_: object) -> None:
        if still():
            raise RunError(why)

    kernel.call_at(kernel.now + nanoseconds(_FIND_OUT_S), decide)


class Membership:
    """The group of all workers that are still in the run.

    Args:
        timeout_s: seconds in which all of them must join an all-reduce.
        tell: sends a message to a worker.
        first: number of the first all-reduce.

    Attributes:
        here: the workers that are still in the run.
    """

    def __init__(
        self,
        kernel: Kernel,
        workers: Iterable[str],
        timeout_s: float,
        tell: Tell,
        first: int = 0,
    ) -> None:
        self._kernel, self._timeout_s, self._tell = kernel, timeout_s, tell
        self.here = list(workers)
        self._numbers = {name: number for number, name in enumerate(self.here)}
        self._entered = dict.fromkeys(self.here, first)  # all-reduces
        # generations of groups: the newest, and the last one that broke
        self._generation, self._broken = 0, -1
        self._group = self.here
        # deadline of the workers that have not joined the newest all-reduce
        self._alarm: Alarm | None = None

    @property
    def averages(self) -> int:
        """Number of all-reduces that a worker has joined since the run began."""
        return max(self._entered.values())

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call this when no average of two is running: at once."""
        action()

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a worker; False if it is not about groups."""
        if isinstance(message, TakePart) and message.what == "all-reduce":
            self._enter(name, message.number)
        elif isinstance(message, GroupBroken):
            self._broken = max(self._broken, message.generation)
            if message.generation == self._generation and not self._regroup():
                why = f"{name} cannot reach the other workers: {message.reason}"
                end_if_still(self._kernel, lambda: self._generation == message.generation, why)
        elif isinstance(message, Leave):
            self._remove(name)
            self._regroup_if_missed()
        else:
            return False
        return True

    def lose(self, name: str) -> None:
        """Note that a worker is lost without having left."""
        self._remove(name)
        self._regroup()

    def _remove(self, name: str) -> None:
        self.here = [other for other in self.here if other != name]

    def _enter(self, name: str, number: int) -> None:
        # A worker that joins the next all-reduce has the result of the last one, so all had joined
        # that.
        if number >= max(self._entered.values()):
            if self._alarm is not None:
                self._kernel.call_off(self._alarm)
            due = self._kernel.now + nanoseconds(self._timeout_s)
            self._alarm = self._kernel.set_alarm(due, partial(self._require_all, number))
        self._entered[name] = number + 1
        self._regroup_if_missed()

    def _regroup_if_missed(self) -> None:
        furthest = max((self._entered[name] for name in self.here), default=0)
        gone = [name for name in self._group if name not in self.here]
        missed = any(self._entered[name] < furthest for name in gone)
        if missed or self._broken == self._generation:
            self._regroup()

    def _regroup(self) -> bool:
        """Form a group of the workers in the run; False if it exists already or is empty."""
        here = self.here
        if here == self._group or not here:
            return False
        self._generation += 1
        members = [self._numbers[name] for name in here]
        for name in dict.fromkeys([*self._group, *here]):
            self._tell(name, Regroup(self._generation, members))
        self._group = here
        return True

    def _require_all(self, number: int) -> None:
        self._alarm = None
        late = [name for name in self.here if self._entered[name] <= number]
        if late and len(late) < len(self.here):
            waiting = ", ".join(name for name in self.here if name not in late)
            raise RunError(
                f"{', '.join(late)} did not come to all-reduce {number} within "
                f"{self._timeout_s:g} s (sync.timeout_s); {waiting} waited"
            )
