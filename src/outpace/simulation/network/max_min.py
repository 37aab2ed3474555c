"""Max-min fair rates of flows that share resources.

The rates are fair if no rate can grow without lowering a rate that is not larger. They are computed
by progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all rates grow
equally until a resource is full; then the flows of this resource keep their rates, and the other
rates continue to grow.
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
    flows: dict[Flow, None] = field(default_factory=dict)  # flows that use it, oldest first
    _left: float = 0.0  # capacity that `max_min` has not assigned
    _open: int = 0  # number of flows without a rate in `max_min`


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes that are being sent over resources, which list the flow in `flows`."""

    resources: tuple[Resource, ...]
    carries: Any = None
    number: int = 0
    left: float = 0.0  # bytes left at the time `since`
    rate: float = 0.0  # bytes/s from then on; 0: not yet known
    since: Time = 0
    end: Time = 0  # time of its end at that rate
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
        # it gained capacity from flows whose rates other resources keep below its own
        if full > rate:
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
    """Return this resource and all that are connected with it by flows, directly or indirectly."""
    found = {first: None}
    todo = [first]
    for resource in todo:  # the list grows during the loop
        for flow in resource.flows:
            for other in flow.resources:
                if other not in found:
                    found[other] = None
                    todo.append(other)
    return found
