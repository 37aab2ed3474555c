"""Which messages an average of m bytes among N workers consists of, and how long they take.

A ring (Patarasu and Yuan, 2009; HPSGD, section 2): 2(N−1) rounds, in each of which everybody
sends a chunk of m/N bytes to the next, so 2(N−1)·(L + m/(N·B)) in all. A tree: ⌈log2 N⌉ rounds
in which m bytes go towards the first worker, pair by pair, and as many back. An exchange: two
send each other m bytes at once, L + m/B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from outpace.cluster.links import Paths
from outpace.support.units import SECOND, Time
from outpace.sync import AllReduce
from outpace.sync.messages import worker_name

Pattern: TypeAlias = AllReduce | Literal["exchange"]
Round: TypeAlias = list[tuple[int, int]]  # (sender, receiver)


def rounds_of(pattern: Pattern, members: Sequence[int]) -> tuple[list[Round], int]:
    """Its rounds, and into how many chunks the bytes are cut: a message carries one."""
    count = len(members)
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
    """What one takes by itself."""

    duration: Time
    messages: int
    bytes_sent: int  # of all messages


class Costs:
    """Where connections are not shared: the rounds follow each other, and each takes as long as its
    slowest message. paths: None: no time at all."""

    def __init__(self, paths: Paths | None) -> None:
        self._paths = paths
        self._cost = lru_cache(maxsize=4096)(self._cost_of)

    def of(self, pattern: Pattern, members: Sequence[int], size_bytes: int) -> Cost:
        """One of so many bytes among these workers."""
        return self._cost(pattern, tuple(members), size_bytes)

    def _cost_of(self, pattern: Pattern, members: tuple[int, ...], size_bytes: int) -> Cost:
        rounds, chunks = rounds_of(pattern, members)
        duration, known = 0.0, {}
        for once in rounds:
            if id(once) not in known:  # a ring's are one and the same
                known[id(once)] = max(self.time(pair, size_bytes / chunks) for pair in once)
            duration += known[id(once)]
        messages = sum(map(len, rounds))
        return Cost(math.floor(duration + 0.5), messages, messages * size_bytes // chunks)

    def time(self, pair: tuple[int, int], size_bytes: float) -> float:
        """Of a message from one worker to another, in ns."""
        if self._paths is None:
            return 0.0
        sender, receiver = map(worker_name, pair)
        ends = self._paths.bandwidth(sender), self._paths.bandwidth(receiver)
        bandwidth = min(*ends, self._paths.limit(sender, receiver))
        return self._paths.latency(sender, receiver) + size_bytes / bandwidth * SECOND
