"""Max-min fair rates of flows that share resources."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from typing import Any

from outpace.support.units import SECOND, Time


class Resource:
    """One direction of a machine's interface, or the limit of a pair of nodes."""

    __slots__ = ("_left", "_open", "capacity", "flows")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity  # bytes/s
        self.flows: dict[Flow, None] = {}  # those that use it, oldest first
        self._left, self._open = 0.0, 0  # capacity not given away by `max_min`, and flows without


class Flow:
    """Bytes on their way over resources, which have it in their `flows`."""

    __slots__ = ("carries", "end", "group", "left", "number", "rate", "resources", "since")

    def __init__(
        self,
        resources: tuple[Resource, ...],
        carries: Any = None,
        size_bytes: int = 0,
        since: Time = 0,
        number: int = 0,
    ) -> None:
        self.resources, self.carries, self.number = resources, carries, number
        self.rate = 0.0  # bytes/s since `since`, when `left` bytes were to come
        self.left, self.since = float(size_bytes), since
        self.end: Time = 0  # at that rate
        self.group: Any = None  # the flows whose rates were made together with this one's
        for resource in resources:
            resource.flows[self] = None

    def leave(self) -> None:
        for resource in self.resources:
            del resource.flows[self]

    def set_rate(self, rate: float, now: Time) -> None:
        left = self.left - self.rate * (now - self.since) / SECOND
        self.left, self.rate, self.since = left, rate, now
        self.end = now + int(left / rate * SECOND + 0.5) if left > 0 else now


def max_min(resources: Iterable[Resource]) -> dict[Flow, float]:
    """Return the max-min fair rates, in bytes/s, of the flows that use only these resources.

    No rate can grow without lowering one that is not larger. Progressive filling (Bertsekas
    and Gallager, Data Networks, section 6.5.2): all rates grow alike until a resource is full;
    its flows keep their rates and the others grow on.
    """
    rates: dict[Flow, float] = {}
    heap = []  # the rate at which each resource will be full, or less
    for place, resource in enumerate(resources):
        if resource.flows:
            resource._left, resource._open = resource.capacity, len(resource.flows)
            heap.append((resource._left / resource._open, place, resource))
    heapify(heap)
    while heap:
        rate, place, resource = heap[0]
        if not resource._open:
            heappop(heap)
            continue
        full = resource._left / resource._open
        if full > rate:  # it gained by flows whose rates other resources keep below it
            heapreplace(heap, (full, place, resource))
            continue
        heappop(heap)
        for flow in resource.flows:
            if flow not in rates:
                rates[flow] = rate
                for each in flow.resources:
                    each._left -= rate
                    each._open -= 1
    return rates


def connected(first: Resource) -> dict[Resource, None]:
    """Return this resource and all that flows link to it, directly or through others."""
    found = {first: None}
    todo = [first]
    for resource in todo:  # grows meanwhile
        for flow in resource.flows:
            for other in flow.resources:
                if other not in found:
                    found[other] = None
                    todo.append(other)
    return found
