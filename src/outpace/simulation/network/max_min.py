"""Max-min fair rates of flows that share resources.

No rate can grow without lowering one that is not larger. Progressive filling (Bertsekas and
Gallager, Data Networks, section 6.5.2): all rates grow alike until a resource is full; its flows
keep their rates and the others grow on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any

from outpace.support.units import Time


@dataclass(slots=True, eq=False)
class Resource:
    """One direction of a machine's interface, or the limit of a pair of nodes."""

    capacity: float  # bytes/s
    flows: dict[Flow, None] = field(default_factory=dict)  # that use it, oldest first
    _left: float = 0.0  # capacity that `max_min` has not given away
    _open: int = 0  # flows that it has given no rate


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way over resources, which have it in their `flows`."""

    resources: tuple[Resource, ...]
    carries: Any = None
    number: int = 0
    left: float = 0.0  # bytes to come at the time `since`
    rate: float = 0.0  # bytes/s from then on; 0: not yet known
    since: Time = 0
    end: Time = 0  # at that rate
    group: Any = None  # the flows whose rates were computed together with this one's

    def __post_init__(self) -> None:
        for resource in self.resources:
            resource.flows[self] = None

    def leave(self) -> None:
        self.group = None
        for resource in self.resources:
            del resource.flows[self]


def max_min(resources: Iterable[Resource]) -> dict[Flow, float]:
    """Return the max-min fair rates, in bytes/s, of the flows that use only these resources."""
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
