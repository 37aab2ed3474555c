"""The flows under way as columns of numbers, so that many change their rates at once.

Where the connections of a large cluster are saturated, each change concerns more than a thousand
flows. Vectors of numpy take some 20 ns for each of them, loops 500. Where few flows change, loops
are faster, so each column is an array that loops use, and a vector over the same memory.

Both ways give bitwise the same: `max_min` is the rule, and `_vector_of_rates` leaves to it what
could round in another way.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from outpace.simulation.network.max_min import Flow, Resource, connected, max_min
from outpace.support.units import SECOND, Time

FEW: Final = 60  # flows; for fewer, loops are faster
_LONGEST: Final = float(2**62)  # ns, 146 years: a flow that takes longer never ends
_EQUAL: Final = 1 + 1e-9  # shares that differ by less count as equal

_Column = TypeVar("_Column", "array[int]", "array[float]")
Places = NDArray[np.int64]  # of flows in the columns
_Floats = NDArray[np.float64]


class FlowTable:
    """The flows under way, each at a place in the columns from `begin` to `leave`."""

    def __init__(self, few: int = FEW) -> None:
        self._few = few
        self._resources = 1  # their numbers are below it; 0 is none
        self._capacity = np.full(64, np.inf)  # of each resource
        self._count = 0
        self._flows: list[Flow | None] = []  # by place
        self._free: list[int] = []  # places
        # Bytes to come at the time `since`, bytes/s from then on, and the end at that rate. The
        # group: of flows whose rates were computed together; 0: none.
        self._left, self._rate = array("d"), array("d")
        self._since, self._end, self._group = array("q"), array("q"), array("q")
        # Numbers of the resources: sending, receiving, the limit of the pair. Most networks need
        # only the first two columns.
        self._uses = array("q"), array("q"), array("q")
        self._most = 0  # resources of a flow
        self._grow(64)

    def _grow(self, more: int) -> None:
        before = len(self._flows)
        self._free += range(before + more - 1, before - 1, -1)
        self._flows += [None] * more
        # New arrays, since an array with a vector over it cannot grow.
        self._left, self._rate = _longer(self._left, more), _longer(self._rate, more)
        self._since, self._end = _longer(self._since, more), _longer(self._end, more)
        self._group = _longer(self._group, more)
        one, two, three = self._uses
        self._uses = _longer(one, more), _longer(two, more), _longer(three, more)
        self._lefts, self._rates = np.frombuffer(self._left), np.frombuffer(self._rate)
        self._sinces, self._ends, self._groups, *self._used = (
            np.frombuffer(each, np.int64)
            for each in (self._since, self._end, self._group, *self._uses)
        )

    def resource(self, capacity: float) -> Resource:
        """Return a new resource for flows of this table."""
        number = self._resources
        if number == len(self._capacity):
            self._capacity = np.resize(self._capacity, 2 * number)
        self._capacity[number] = capacity
        self._resources += 1
        return Resource(capacity, number)

    def begin(self, flow: Flow, size_bytes: int, now: Time) -> None:
        """Add a flow, which has no rate yet."""
        if not self._free:
            self._grow(len(self._flows))
        place = flow.place = self._free.pop()
        self._count += 1
        self._flows[place] = flow
        self._left[place], self._rate[place] = float(size_bytes), 0.0
        self._since[place], self._end[place], self._group[place] = now, 0, 0
        for column, resource in zip(self._uses, flow.resources, strict=False):  # others are 0
            column[place] = resource.number
        self._most = max(self._most, len(flow.resources))

    def leave(self, flow: Flow) -> None:
        """Remove a flow."""
        flow.leave()
        place = flow.place
        self._count -= 1
        self._flows[place] = None
        self._group[place] = 0
        for column in self._uses:
            column[place] = 0
        self._free.append(place)

    def due(self, group: int, now: Time) -> list[Flow]:
        """Return the flows of a group that have ended, in the order in which they began."""
        places = _where((self._groups == group) & (self._ends <= now))
        found = [flow for place in places if (flow := self._flows[place]) is not None]
        return sorted(found, key=lambda flow: flow.number)

    def share_out(self, first: Resource, group: int, now: Time) -> tuple[set[int], set[int], Time]:
        """Compute the rates of the flows that are linked to a resource, and make them a group.

        Returns:
            The numbers of the resources of these flows, the groups in which they were, and the
            first end.
        """
        if self._count >= self._few:
            places = self._linked(first)
            if len(places) >= self._few:
                return self._share_out_many(places, first, group, now)
        found = connected(first)
        return {each.number for each in found}, *self._share_out_few(found, group, now)

    # -- in loops --------------------------------------------------------------------

    def _share_out_few(
        self, resources: Collection[Resource], group: int, now: Time
    ) -> tuple[set[int], Time]:
        rates, ends, groups = self._rate, self._end, self._group
        before: set[int] = set()
        first: Time | None = None
        for flow, rate in max_min(resources).items():
            place = flow.place
            before.add(groups[place])
            groups[place] = group
            if rate != rates[place]:
                left = self._left[place] - rates[place] * (now - self._since[place]) / SECOND
                self._left[place], rates[place], self._since[place] = left, rate, now
                ticks = min(left / rate * SECOND + 0.5, _LONGEST)
                ends[place] = now + int(ticks) if left > 0 else now
            if first is None or ends[place] < first:
                first = ends[place]
        assert first is not None
        return before, first

    # -- in vectors ------------------------------------------------------------------

    def _linked(self, first: Resource) -> Places:
        """Return the places of the flows of all resources that `connected` finds."""
        inside = np.zeros(self._resources, bool)
        inside[first.number] = True
        columns = self._used[: self._most]
        count = 0
        while True:
            found = inside[columns[0]]
            for column in columns[1:]:
                found |= inside[column]
            places = _where(found)
            if len(places) in (count, self._count):  # there are no others
                return places
            count = len(places)
            for column in columns:
                inside[column[places]] = True
            inside[0] = False

    def _share_out_many(
        self, places: Places, first: Resource, group: int, now: Time
    ) -> tuple[set[int], set[int], Time]:
        resources, rates = self._vector_of_rates(places)
        if rates is None:
            given = max_min(connected(first))
            places = np.array([flow.place for flow in given])
            rates = np.array(list(given.values()))
        groups = self._groups[places]
        before = {int(groups[0]), *groups[1:][groups[1:] != groups[:-1]].tolist()}
        self._groups[places] = group
        old = self._rates[places]
        changed = _where(rates != old)
        where, old, rates = places[changed], old[changed], rates[changed]
        left = self._lefts[where] - old * (now - self._sinces[where]) / SECOND
        self._lefts[where], self._rates[where], self._sinces[where] = left, rates, now
        ticks = np.minimum(np.maximum(left, 0) / rates * SECOND + 0.5, _LONGEST)
        self._ends[where] = now + ticks.astype(np.int64)
        return set(resources.tolist()), before, int(self._ends[places].min())

    def _vector_of_rates(self, places: Places) -> tuple[Places, _Floats | None]:
        """Return the numbers of the resources of the flows at these places, and their rates.

        The rates are those of `max_min`; None: only it can say.

        In each round the resources with the smallest share are full. `max_min` takes one after the
        other. That comes to the same as long as no flow uses two of them, and the shares of all
        others are larger and only grow.
        """
        used = [column[places] for column in self._used[: self._most]]
        users = np.bincount(np.concatenate(used), minlength=self._resources)
        users[0] = 0
        resources = numbers = _where(users)
        left = self._capacity[: self._resources].copy()
        rates, pending = np.empty(len(places)), np.arange(len(places))
        before = np.zeros(self._resources)  # the shares in the round before
        is_full = np.zeros(self._resources, np.int8)
        while True:
            shares = left[numbers] / users[numbers]
            rate = shares.min()
            full = numbers[shares == rate]
            if np.count_nonzero(shares < rate * _EQUAL) > len(full):
                return resources, None
            if np.count_nonzero(shares < before[numbers]):
                return resources, None
            before[numbers] = shares
            is_full[full] = 1
            hits = is_full[used[0]]
            for column in used[1:]:
                hits += is_full[column]
            settled, others = hits == 1, hits == 0
            if np.count_nonzero(settled) + np.count_nonzero(others) < len(hits):
                return resources, None
            rates[pending[settled]] = rate
            pending = pending[others]
            if not len(pending):
                return resources, rates
            for column in used:
                taken = column[settled]
                np.subtract.at(left, taken, rate)  # one after the other, as `max_min` does
                np.subtract.at(users, taken, 1)
            used = [column[others] for column in used]
            numbers = numbers[users[numbers] > 0]


def _where(flags: NDArray[Any]) -> Places:
    """Return the places that are not 0; as np.flatnonzero, in less time."""
    return flags.nonzero()[0]


def _longer(column: _Column, more: int) -> _Column:
    return column + array(column.typecode, bytes(column.itemsize * more))
