"""Partitions of the network, and messages that are lost, repeated or overtaken on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from outpace.kernel import Kernel
from outpace.simulation.network.links import NodePath, Transfer
from outpace.simulation.network.partitions import Partitions
from outpace.support.units import Time
from outpace.sync.membership import Fence

_FIRST: Final = 0  # generation: each process has paths of its own
_Numbered: TypeAlias = tuple[Transfer, int]  # with its serial number


class Obstacles:
    """Holds messages back that cannot arrive yet.

    Programs get the messages of one path once and in order, whatever happens to them on it. TCP
    does so by the numbers of bytes. Here the fence of real connections does it by the numbers of
    messages, and what arrives too early waits.

    deliver: called with a message when it arrives.

    Attributes:
        passed_over: messages that had arrived before.
        early: messages that arrived before one that was sent earlier.
    """

    def __init__(self, kernel: Kernel, deliver: Callable[[Transfer], None]) -> None:
        self._kernel, self._deliver = kernel, deliver
        self._partitions = Partitions()
        # Node -> ns after which its next message comes (again).
        self._resent: dict[str, Time] = {}
        self._repeated: dict[str, Time] = {}
        self._delayed: dict[str, Time] = {}
        self._held: dict[NodePath, deque[Transfer]] = {}
        self._receivers: dict[NodePath, _Receiver] = {}  # of paths with numbered messages
        self.passed_over = self.early = 0

    def partition(self, node: str, until: Time) -> None:
        """Let nothing through from or to this node before that time (ns)."""
        self._partitions.add(node, self._kernel.now, until)

    def until(self, node: str) -> Time:
        """Return when the partition of a node ends (ns); 0 if it never had one."""
        return self._partitions.until(node)

    def end_partition(self, node: str) -> None:
        """Let messages through again; those that were held back arrive now."""
        self._partitions.end(node, self._kernel.now)
        for link in list(self._held):
            if self._due(link) <= self._kernel.now:
                self._release(link)

    def lose(self, node: str, resent: Time) -> None:
        """Lose the next message of a node; it arrives so many ns later, others wait behind it."""
        self._resent[node] = resent

    def repeat(self, node: str, later: Time) -> None:
        """Let the next message of a node arrive, and once more so many ns later."""
        self._repeated[node] = later

    def delay(self, node: str, later: Time) -> None:
        """Let the next message of a node arrive so many ns later, after those that follow it."""
        self._delayed[node] = later

    def lost_time(self, nodes: Sequence[str]) -> Time:
        """Return how much longer an average of these nodes takes whose messages are not simulated.

        The messages that are lost or overtaken next are then among its messages; one that comes
        twice changes nothing.
        """
        longer = 0
        for node in nodes:
            for later in (self._resent, self._delayed):
                longer = max(longer, later.pop(node, 0))
            self._repeated.pop(node, 0)
        return longer

    def work_ends(self, nodes: Sequence[str], begin: Time, duration: Time) -> Time:
        """See `Partitions`."""
        return self._partitions.work_ends(nodes, begin, duration)

    def take(self, transfer: Transfer) -> bool:
        """Return True if the message is held back; it is delivered later."""
        link = transfer.link
        held = self._held.get(link)
        if held is None:
            due = self._due(link)
            if not link.local and (resent := self._resent.pop(link.sender.name, 0)):
                due = max(due, self._kernel.now + resent)
            if due <= self._kernel.now:
                return self._tamper(transfer)
            held = self._held[link] = deque()
            self._kernel.call_at(due, self._release, link)
        held.append(transfer)
        return True

    def _due(self, link: NodePath) -> Time:
        if link.local:  # both ends are on one machine
            return 0
        return max(self.until(link.sender.name), self.until(link.receiver.name))

    def _release(self, link: NodePath) -> None:
        if (due := self._due(link)) > self._kernel.now:  # another partition has begun
            self._kernel.call_at(due, self._release, link)
            return
        for transfer in self._held.pop(link, ()):
            if not self._tamper(transfer):
                self._deliver(transfer)

    def _tamper(self, transfer: Transfer) -> bool:
        """Repeat or delay a message if that is due; return True if it is delivered later."""
        link, repeated, delayed = transfer.link, 0, 0
        if not link.local:
            repeated = self._repeated.pop(link.sender.name, 0)
            delayed = self._delayed.pop(link.sender.name, 0)
        receiver = self._receivers.get(link)
        if receiver is None:
            if not repeated and not delayed:
                return False
            receiver = self._receivers[link] = _Receiver()
        numbered = transfer, receiver.number()
        now = self._kernel.now
        if repeated:
            self._kernel.call_at(now + delayed + repeated, self._arrive, numbered)
        if delayed:
            self._kernel.call_at(now + delayed, self._arrive, numbered)
            return True
        if receiver.is_due(numbered) and not receiver.early:
            receiver.fence.take()
            return False
        self._arrive(numbered)
        return True

    def _arrive(self, numbered: _Numbered) -> None:
        """Hand on all that is due when a numbered message is there."""
        link = numbered[0].link
        receiver = self._receivers[link]
        if link.is_cut:  # another process has taken the place of one of the two
            return
        if (due := self._due(link)) > self._kernel.now:  # a partition has begun
            self._kernel.call_at(due, self._arrive, numbered)
            return
        verdict = receiver.fence.verdict(_FIRST, numbered[1])
        self.passed_over += verdict == "again"
        self.early += verdict == "early"
        for transfer in receiver.ordered(numbered):
            self._deliver(transfer)


class _Receiver:
    """The receiving end of one path."""

    def __init__(self) -> None:
        self.fence = Fence(_FIRST)
        self.early: dict[int, Transfer] = {}  # by serial number
        self._sent = 0

    def number(self) -> int:
        """Return the serial number of the next message that is sent."""
        self._sent += 1
        return self._sent - 1

    def is_due(self, numbered: _Numbered) -> bool:
        return self.fence.verdict(_FIRST, numbered[1]) == "due"

    def ordered(self, numbered: _Numbered) -> list[Transfer]:
        """Return the messages that are due when this one arrives; keep it if it is early."""
        transfer, serial = numbered
        match self.fence.verdict(_FIRST, serial):
            case "early":
                self.early[serial] = transfer
                return []
            case "due":
                found = [transfer]
                self.fence.take()
                while (after := self.early.pop(self.fence.serial, None)) is not None:
                    found.append(after)
                    self.fence.take()
                return found
            case _:
                return []
