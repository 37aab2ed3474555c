"""Partitions of the network, and messages that are lost on their way and sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from outpace.kernel import Kernel
from outpace.simulation.network.links import NodePath, Transfer
from outpace.simulation.network.partitions import Partitions
from outpace.support.units import Time


class Obstacles:
    """Holds messages back that cannot arrive yet, and those behind them on the same path.

    deliver: called with a message when it arrives.
    """

    def __init__(self, kernel: Kernel, deliver: Callable[[Transfer], None]) -> None:
        self._kernel, self._deliver = kernel, deliver
        self._partitions = Partitions()
        self._resent: dict[str, Time] = {}  # node -> ns after which its next message comes again
        self._held: dict[NodePath, deque[Transfer]] = {}

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

    def lost_time(self, nodes: Sequence[str]) -> Time:
        """Return how much longer an average of these nodes takes whose messages are not simulated.

        The messages that are lost next are then among its messages.
        """
        return max((self._resent.pop(node, 0) for node in nodes), default=0)

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
        for transfer in self._held.pop(link, ()):
            self._deliver(transfer)
