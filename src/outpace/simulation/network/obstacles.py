"""Partitions of the network, and messages that are lost on their way and sent again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from outpace.kernel import Kernel
from outpace.simulation.network.links import NodePath, Transfer
from outpace.support.units import Time


class Obstacles:
    """Holds messages back that cannot arrive yet, and those behind them on the same path.

    deliver: called with a message when it arrives.
    """

    def __init__(self, kernel: Kernel, deliver: Callable[[Transfer], None]) -> None:
        self._kernel, self._deliver = kernel, deliver
        # By node: when its partitions begin and end (ns); there may be several at once.
        self._partitions: defaultdict[str, list[tuple[Time, Time]]] = defaultdict(list)
        self._resent: dict[str, Time] = {}  # node -> ns after which its next message comes again
        self._held: dict[NodePath, deque[Transfer]] = {}

    def partition(self, node: str, until: Time) -> None:
        """Let nothing through from or to this node before that time (ns)."""
        self._partitions[node].append((self._kernel.now, until))

    def until(self, node: str) -> Time:
        """Return when the last partition of a node ends (ns); 0 if it never had one."""
        return max((end for _, end in self._partitions.get(node, ())), default=0)

    def end_partition(self, node: str) -> None:
        """Let messages through again; those that were held back arrive now."""
        now, known = self._kernel.now, self._partitions[node]
        self._partitions[node] = [(begin, min(end, now)) for begin, end in known if begin < now]
        for link in list(self._held):
            if self._due(link) <= now:
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
        """Return when work of so long is done that stands still while one of the nodes is cut off.

        Args:
            nodes: that exchange messages for it.
            begin: of the work.
        """
        at, left = begin, duration
        cut_off = [each for node in nodes for each in self._partitions.get(node, ())]
        for start, end in sorted(cut_off):
            if end <= at:
                continue
            if start - at > left or (start - at == left and left):
                break
            left -= max(0, start - at)
            at = end
        return at + left

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
