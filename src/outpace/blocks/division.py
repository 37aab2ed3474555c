"""Divisions of the flat parameter vector among servers that join and leave.

At the start of a run each server owns one contiguous slice (`blocks.slicing`). When servers join or
leave, a new division is planned from the present one (elastic parameter slicing of FluentPS,
section III-B): the sizes of the servers' parts differ by at most one element again, and as few
elements as possible change their server. So a part is a list of ranges. Contiguous slices would
need more: from 3 servers to 4, a third of the parameters would move in place of a quarter.

The least possible: with K elements and m servers, K mod m servers have one element more than
floor(K/m). Every server keeps at most min(what it had, its new size), so at least K minus the sum
of these minima move. That sum is largest when the larger sizes go to the servers that had most. The
plan reaches it: a server that has too much gives away the surplus and receives nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from outpace.errors import ConfigError


class Range(NamedTuple):
    """Consecutive elements of the flat parameters: from `low`, without `high`."""

    low: int
    high: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.high - self.low


Ranges: TypeAlias = tuple[Range, ...]  # ascending, with gaps between them


@dataclass(frozen=True)
class Division:
    """Which server owns which elements.

    Attributes:
        number: 0 at the start of the run; one more with each new division.
        parts: the ranges of each server. The block of a server has them one after another.
    """

    number: int
    parts: Mapping[int, Ranges]

    @classmethod
    def of_slices(cls, slices: Iterable[slice]) -> Division:
        """Return the division at the start of a run; server m has the m-th slice."""
        return cls(0, {m: (Range(part.start, part.stop),) for m, part in enumerate(slices)})

    @property
    def servers(self) -> list[int]:
        """The numbers of the servers, ascending."""
        return sorted(self.parts)

    @property
    def elements(self) -> int:
        """The number of elements of all servers."""
        return sum(map(size_of, self.parts.values()))

    def size(self, server: int) -> int:
        """Return the number of elements of a server."""
        return size_of(self.parts[server])

    @cached_property
    def pieces(self) -> list[tuple[Range, int]]:
        """All ranges in the order of the flat parameters, each with its server."""
        return sorted((piece, server) for server, part in self.parts.items() for piece in part)

    def problem(self) -> str:
        """Return why this is no division of the elements from 0 on; empty if it is one."""
        end = 0
        for piece, server in self.pieces:
            if piece.low != end or piece.high <= piece.low:
                return f"element {end} is not in exactly one part (server {server})"
            end = piece.high
        return "" if all(self.parts.values()) else "a server owns nothing"


def size_of(part: Ranges) -> int:
    """Return the number of elements in these ranges."""
    return sum(piece.size for piece in part)


def places_within(part: Ranges, wanted: Iterable[Range]) -> list[slice]:
    """Return where in the block of a part these ranges are; each lies in one range of the part.

    Raises ValueError if one does not.
    """
    starts, places, total = [piece.low for piece in part], [], 0
    for piece in part:
        places.append(total)
        total += piece.size
    found = []
    for piece in wanted:
        at = bisect_right(starts, piece.low) - 1
        if at < 0 or piece.high > part[at].high:
            raise ValueError(f"{piece} is not in the part {part}")
        low = places[at] + piece.low - part[at].low
        found.append(slice(low, low + piece.size))
    return found


def shared(one: Ranges, other: Ranges) -> list[Range]:
    """Return the ranges that both parts have, cut at the borders of both, ascending."""
    found, mine, theirs = [], 0, 0
    while mine < len(one) and theirs < len(other):
        low = max(one[mine].low, other[theirs].low)
        high = min(one[mine].high, other[theirs].high)
        if low < high:
            found.append(Range(low, high))
        if one[mine].high <= other[theirs].high:
            mine += 1
        else:
            theirs += 1
    return found


def moved(before: Division, after: Division) -> int:
    """Return how many elements have another server afterwards."""
    kept = 0
    for server, part in after.parts.items():
        kept += size_of(tuple(shared(before.parts.get(server, ()), part)))
    return after.elements - kept


def divided_anew(before: Division, servers: Collection[int]) -> Division:
    """Return the division for these servers that moves the fewest elements.

    Raises:
        ConfigError: if a server would own nothing.
    """
    elements = before.elements
    if not 0 < len(servers) <= elements:
        raise ConfigError(
            f"servers: {len(servers)} servers cannot share {elements} parameters; use from 1 to "
            f"{elements}"
        )
    target = _sizes({server: before.parts.get(server, ()) for server in servers}, elements)
    kept: dict[int, list[Range]] = {}
    free: list[Range] = []
    for server, part in before.parts.items():
        kept[server], given = _cut(part, target.get(server, 0))
        free += given
    free.sort(reverse=True)  # the next one to be given is the last
    for server in sorted(servers):
        mine = kept.setdefault(server, [])
        lacks = target[server] - size_of(tuple(mine))
        while lacks > 0:
            piece = free.pop()
            if piece.size > lacks:
                free.append(Range(piece.low + lacks, piece.high))
                piece = Range(piece.low, piece.low + lacks)
            mine.append(piece)
            lacks -= piece.size
    return Division(
        before.number + 1, {server: _joined(kept[server]) for server in sorted(servers)}
    )


def _sizes(present: Mapping[int, Ranges], elements: int) -> dict[int, int]:
    """Return the new size of each server; one element more for those that have most now."""
    size, more = divmod(elements, len(present))
    most = sorted(present, key=lambda server: (-size_of(present[server]), server))
    return {server: size + (place < more) for place, server in enumerate(most)}


def _cut(part: Ranges, keeps: int) -> tuple[list[Range], list[Range]]:
    """Return the first `keeps` elements of a part, and the rest."""
    kept, rest = [], []
    for piece in part:
        here = min(keeps, piece.size)
        keeps -= here
        if here:
            kept.append(Range(piece.low, piece.low + here))
        if here < piece.size:
            rest.append(Range(piece.low + here, piece.high))
    return kept, rest


def _joined(pieces: Sequence[Range]) -> Ranges:
    """Return ranges in ascending order; those that touch are one."""
    found: list[Range] = []
    for piece in sorted(pieces):
        if found and found[-1].high == piece.low:
            found[-1] = Range(found[-1].low, piece.high)
        else:
            found.append(piece)
    return tuple(found)
