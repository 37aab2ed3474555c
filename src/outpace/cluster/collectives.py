"""The messages of an average of m bytes among N workers, and the time that they take.

A ring (Patarasu and Yuan, 2009; HPSGD, section 2): 2(N−1) rounds, in each of which every worker
sends a chunk of m/N bytes to the next, so 2(N−1)·(L + m/(N·B)) in all, with latency L and
bandwidth B. A tree: ⌈log2 N⌉ rounds in which m bytes go towards the first worker, pair by pair,
and as many rounds back. An exchange: two workers send each other m bytes at once, L + m/B.

A library may need more for a round than for a message, because of its protocol. So all-reduces and
the collectives of scripts (`collective_rounds`), but not exchanges, may have an L and B of their
own (`network.all_reduce`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from outpace.cluster.collective_rounds import OtherPattern, Round, other_rounds
from outpace.cluster.paths import Paths
from outpace.support.units import SECOND, Time, nanoseconds
from outpace.sync import AllReduce
from outpace.sync.messages import worker_name

Pattern: TypeAlias = AllReduce | Literal["exchange"] | OtherPattern


def rounds_of(pattern: Pattern, members: Sequence[int]) -> tuple[list[Round], int]:
    """Return the rounds of an average, and the number of chunks; each message carries one."""
    count = len(members)
    if pattern not in ("ring", "tree", "exchange"):
        return other_rounds(pattern, members)
    if pattern == "exchange":
        one, other = members
        return [[(one, other), (other, one)]], 1
    if pattern == "ring":
        once = [(sender, members[(n + 1) % count]) for n, sender in enumerate(members)]
        return [once] * (2 * (count - 1)), count
    up, stride = [], 1
    while stride < count:
        up.append([(members[n + stride], members[n]) for n in range(0, count - stride, 2 * stride)])
        stride *= 2
    down = [[(receiver, sender) for sender, receiver in once] for once in reversed(up)]
    return up + down, 1


class Cost(NamedTuple):
    """The cost of an average by itself."""

    duration: Time
    messages: int
    bytes_sent: int


class Costs:
    """Costs of averages that share no connections with other messages.

    Rounds follow each other, and each takes as long as its slowest message.

    Args:
        paths: Latency and bandwidth between workers; None if messages take no time.
    """

    def __init__(self, paths: Paths | None) -> None:
        self._paths = paths
        self._cost = lru_cache(maxsize=4096)(self._cost_of)

    def of(self, pattern: Pattern, members: Sequence[int], size_bytes: int) -> Cost:
        """Return the cost of averaging `size_bytes` bytes among these workers."""
        return self._cost(pattern, tuple(members), size_bytes)

    def _cost_of(self, pattern: Pattern, members: tuple[int, ...], size_bytes: int) -> Cost:
        rounds, chunks = rounds_of(pattern, members)
        duration, known = 0.0, {}
        for once in rounds:
            if id(once) not in known:  # all rounds of a ring are the same object
                size = size_bytes / chunks
                known[id(once)] = max(self.time(pattern, pair, size) for pair in once)
            duration += known[id(once)]
        messages = sum(map(len, rounds))
        return Cost(math.floor(duration + 0.5), messages, messages * size_bytes // chunks)

    def time(self, pattern: Pattern, pair: tuple[int, int], size_bytes: float) -> float:
        """Return the nanoseconds that a message between these workers takes."""
        paths = self._paths
        if paths is None:
            return 0.0
        sender, receiver = map(worker_name, pair)
        own = None if pattern == "exchange" else paths.all_reduce
        if own is None or own.latency_s is None:
            latency = paths.latency(sender, receiver)
        else:
            latency = nanoseconds(own.latency_s)
        if own is None or own.bandwidth_bytes_per_s is None:
            ends = paths.bandwidth(sender), paths.bandwidth(receiver)
            bandwidth = min(*ends, paths.limit(sender, receiver))
        else:
            bandwidth = own.bandwidth_bytes_per_s
        return latency + size_bytes / bandwidth * SECOND
