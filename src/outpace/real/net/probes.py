"""The probe at the beginning of a run: sizes of its messages, and how long it may take.

Each worker in turn sends messages to each server, which answers with a block of the same size. The
rows of these exchanges (`record.timing`) tell latency and bandwidth of both directions, while
nothing else is sent. The contents are zeros: they do not touch the training. Workers without
servers time all-reduces of the same sizes instead, all together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from outpace.real.net.block_frames import head_in
from outpace.sync.messages import Count, Index, WireBlock, WireMessage

PROBE_S: Final = 0.5  # all workers together
SIZES: Final = (1 << 10, 1 << 15, 1 << 18, 1 << 21)  # bytes
# How often each size is sent to a server, if there is time. Short messages find the offset between
# two clocks, which is the more exact the shorter the shortest round trip is.
ROUNDS: Final = (8, 4, 3, 2)
MOST_PROBES: Final = sum(ROUNDS)  # of a worker, to a server
# By how much a size is expected to take longer than the next smaller one. From 32 KiB on this is
# the ratio of the sizes, an upper bound; before, latency counts more.
_GROWTH: Final = (1, 4, 8, 8)


class Probe(WireMessage, tag="probe"):
    """A worker to a server, before the run begins, and the server's answer: the same message.

    number: counts this worker's probes of this server from 0.
    """

    shard: Index
    number: Count
    block: WireBlock


def probe_block(probe: Probe) -> tuple[str, int] | None:
    """Return which block may come with a probe, as (dtype, elements); None: it has another one."""
    head = head_in(probe)
    return None if head is None or head.elements not in SIZES else ("uint8", head.elements)


class ProbeTurn:
    """The probe messages of one worker to its servers, within a budget of time.

    Workers begin with different servers, so that each pair has the same chance if there is no time
    for all pairs. A server takes half of the time that is left, the last one all of it. A size is
    left out, and with it the larger ones, if it would take too long for that. The two smallest
    sizes are sent once to the first server even so: on a busy machine the first exchange may take
    longer than the budget, and one size does not tell latency and bandwidth apart.

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
            kept = self._left // 2 if n < self._servers - 1 else 0  # for the other servers
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
