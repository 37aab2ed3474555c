"""When nodes are cut off from the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from outpace.support.units import Time


class Partitions:
    """The partitions of a run; a node may have several. All times in ns."""

    def __init__(self) -> None:
        self._of: defaultdict[str, list[tuple[Time, Time]]] = defaultdict(list)  # begin, end

    def add(self, node: str, begin: Time, end: Time) -> None:
        """Cut a node off."""
        self._of[node].append((begin, end))

    def until(self, node: str) -> Time:
        """Return when the last partition of a node ends; 0 if it never had one."""
        return max((end for _, end in self._of.get(node, ())), default=0)

    def end(self, node: str, now: Time) -> None:
        """End the partitions of a node."""
        self._of[node] = [(begin, min(end, now)) for begin, end in self._of[node] if begin < now]

    def work_ends(self, nodes: Iterable[str], begin: Time, duration: Time) -> Time:
        """Return when work of so long is done that stands still while one of the nodes is cut off.

        Args:
            nodes: that exchange messages for it.
            begin: of the work.
        """
        at, left = begin, duration
        for start, end in sorted(each for node in nodes for each in self._of.get(node, ())):
            if end <= at:
                continue
            if start - at > left or (start - at == left and left):
                break
            left -= max(0, start - at)
            at = end
        return at + left
