"""Partitions of the network, and messages that are lost and sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from outpace.kernel import Kernel
from outpace.simulation.network.links import NodePath, Transfer
from outpace.support.units import Time


class Obstacles:
    """Holds messages back that cannot arrive yet. Messages of one path stay in order, as with TCP.

    deliver: called with a message when it arrives.
    """

    def __init__(self, kernel: Kernel, deliver: Callable[[Transfer], None]) -> None:
        self._kernel, self._deliver = kernel, deliver
        self._until: dict[str, Time] = {}  # node -> end of its partition
        self._resent: dict[str, Time] = {}  # node -> ns after which its next message comes again
        self._held: dict[NodePath, deque[Transfer]] = {}

    def partition(self, node: str, until: Time) -> None:
        """Let nothing through from or to this node before that time (ns)."""
        self._until[node] = max(until, self.until(node))

    def until(self, node: str) -> Time:
        """Return when the partition of a node ends (ns); 0 if it never had one."""
        return self._until.get(node, 0)

    def lose(self, node: str, resent: Time) -> None:
        """Lose the next message of a node; it arrives so many ns later, others wait behind it."""
        self._resent[node] = resent

    def take(self, transfer: Transfer) -> bool:
        """Return True if the message is held back; it is delivered later."""
        link = transfer.link
        held = self._held.get(link)
        if held is None:
            due = self._due(link)
            if (resent := self._resent.pop(link.sender.name, 0)) and not link.local:
                due = max(due, self._kernel.now + resent)
            if due <= self._kernel.now:
                return False
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
        for transfer in self._held.pop(link):
            self._deliver(transfer)
