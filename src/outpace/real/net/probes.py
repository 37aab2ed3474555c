"""The probe at the beginning of a run: sizes of its messages, and limits of its duration.

Each worker in turn sends messages to each server, which answers with a block of the same size. The
rows of these exchanges (`record.timing`) show latency and bandwidth in both directions while no
other messages are sent. The contents are zeros and do not affect the training. Workers without
servers time all-reduces of the same sizes, all workers together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from outpace.real.net.block_frames import head_in
from outpace.sync.messages import Count, Index, WireBlock, WireMessage

PROBE_S: Final = 0.5  # all workers together
SIZES: Final = (1 << 10, 1 << 15, 1 << 18, 1 << 21)  # bytes
# How often each size is sent to a server, if there is time. Short messages give the offset between
# two clocks, which is more exact if the shortest round trip is shorter.
ROUNDS: Final = (8, 4, 3, 2)
MOST_PROBES: Final = sum(ROUNDS)  # most messages of a worker to a server
# Factor by which a size is expected to take longer than the next smaller one. From 32 KiB on this
# is the ratio of the sizes, an upper bound; for smaller sizes, latency dominates.
_GROWTH: Final = (1, 4, 8, 8)


class Probe(WireMessage, tag="probe"):
    """A probe of a worker to a server before the run, and the server's answer: equal messages.

    number: counts this worker's probes of this server from 0.
    """

    shard: Index
    number: Count
    block: WireBlock


def probe_block(probe: Probe) -> tuple[str, int] | None:
    """Return dtype and elements of the block that may come with a probe; None: a wrong probe."""
    head = head_in(probe)
    return None if head is None or head.elements not in SIZES else ("uint8", head.elements)


class ProbeTurn:
    """The probe messages of one worker to its servers, within a budget of time.

    Workers begin with different servers, so that each pair has the same chance if there is no time
    for all pairs. A server takes half of the remaining time, the last server all of it. A size, and
    all larger ones, are left out if they would take too long. The two smallest sizes are always
    sent once to the first server, because on a busy machine the first exchange may take longer than
    the budget, and a single size does not separate latency and bandwidth.

    Args:
        budget: ns.
    """

    def __init__(self, worker: int, servers: int, budget: int) -> None:
        self._first, self._servers = worker % servers, servers
        self._left, self._duration = budget, 0

    def exchanges(self) -> Iterator[tuple[int, int]]:
        """Yield (server, bytes) for each exchange; call `took` after it."""
        for n in range(self._servers):
            if n and self._left <= 0:
                return
            server = (self._first + n) % self._servers
            kept = self._left // 2 if n < self._servers - 1 else 0  # time for the other servers
            for size in self._sizes(kept, is_first=n == 0):
                yield server, size

    def took(self, duration: int) -> None:
        """Note how long the last exchange took (ns)."""
        self._duration = duration
        self._left -= duration

    def _sizes(self, kept: int, is_first: bool) -> Iterator[int]:
        known: dict[int, int] = {}  # shortest time of each size
        for turn in range(max(ROUNDS)):
            expected = 0
            for size, rounds, growth in zip(SIZES, ROUNDS, _GROWTH, strict=True):
                expected = known.get(size, expected * growth)
                is_needed = is_first and turn == 0 and size <= SIZES[1]
                if not is_needed and known and expected > self._left - kept:
                    break
                if turn < rounds:
                    yield size
                    expected = known[size] = min(known.get(size, self._duration), self._duration)
