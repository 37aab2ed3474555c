"""The time that the messages of a collective or an average take (`collective_rounds`).

A library may need more time for a round than for a message, because of its protocol. So all-reduces
and the collectives of scripts, but not exchanges, may have a separate L and B
(`network.all_reduce`).

Workers on one machine share its connection. In a round, their messages to other machines are sent
one after the other, and messages from other machines arrive one after the other; messages within
the machine use its loopback. A preemptive schedule needs no more time than the busiest direction of
a machine (Gonzalez and Sahni, 1976). So a ring in which the workers of a machine are neighbours
takes as long as a ring of machines with one worker each: in each round one message leaves a machine
and one arrives.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from outpace.cluster.collective_rounds import Pattern, Round, rounds_of
from outpace.cluster.network import LinkLaw
from outpace.cluster.paths import Paths
from outpace.support.units import SECOND, Time, nanoseconds
from outpace.sync.messages import worker_name

_End: TypeAlias = tuple[int | str, str]  # a machine, and one of its interfaces


class Cost(NamedTuple):
    """The cost of an average that shares no connection with other messages."""

    duration: Time
    messages: int
    bytes_sent: int  # for messages between machines


class Costs:
    """Costs of averages that share no connection with other messages.

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
        duration, sent = 0.0, 0
        known: dict[int, tuple[float, int]] = {}
        for once in rounds:
            if id(once) not in known:  # all rounds of a ring are the same object
                between = sum(not self._are_together(pair) for pair in once)
                known[id(once)] = max(self.times(pattern, once, size_bytes / chunks)), between
            duration += known[id(once)][0]
            sent += known[id(once)][1]
        messages = sum(map(len, rounds))
        return Cost(math.floor(duration + 0.5), messages, sent * size_bytes // chunks)

    def times(self, pattern: Pattern, once: Round, size_bytes: float) -> list[float]:
        """Return the nanoseconds after which each message of a round has arrived."""
        paths = self._paths
        if paths is None:
            return [0.0] * len(once)
        own = None if pattern == "exchange" else paths.all_reduce
        links = [self._link(paths, pair) for pair in once]
        if own is not None and own.bandwidth_bytes_per_s is not None:
            busy = [size_bytes / own.bandwidth_bytes_per_s * SECOND] * len(once)
        else:
            at: defaultdict[_End, float] = defaultdict(float)
            for ends, _, bandwidth in links:
                for end in ends:
                    at[end] += size_bytes / bandwidth * SECOND
            busy = [max(at[end] for end in ends) for ends, _, _ in links]
        latency = None if own is None or own.latency_s is None else nanoseconds(own.latency_s)
        return [
            (usual if latency is None else latency) + lasts
            for (_, usual, _), lasts in zip(links, busy, strict=True)
        ]

    def _are_together(self, pair: tuple[int, int]) -> bool:
        """True if two workers are on one machine."""
        if self._paths is None:
            return False
        one, other = (self._paths.machine(worker_name(member)) for member in pair)
        return one == other

    def _link(self, paths: Paths, pair: tuple[int, int]) -> tuple[tuple[_End, ...], Time, float]:
        """Return the interfaces, latency and bandwidth of messages between these workers."""
        sender, receiver = map(worker_name, pair)
        source, target = paths.machine(sender), paths.machine(receiver)
        if source == target:
            law = paths.loopback or LinkLaw()
            bandwidth = law.bandwidth_bytes_per_s or math.inf
            return ((source, "loopback"),), nanoseconds(law.latency_s or 0.0), bandwidth
        rates = paths.bandwidth(sender), paths.bandwidth(receiver), paths.limit(sender, receiver)
        ends = (source, "sending"), (target, "receiving")
        return ends, paths.latency(sender, receiver), min(rates)
