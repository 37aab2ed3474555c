"""The flows under way as columns of numbers, so that many change their rates at once.

Where the connections of a large cluster are saturated, each change concerns more than a thousand
flows. Vectors of numpy take some 20 ns for each of them, loops 500. Where few flows change, loops
are faster, so each column is an array that loops use, and a vector over the same memory. Where all
flows are limited at one end, as at saturated servers, they become a `HubGroup`, which takes less.

All ways give bitwise the same: `max_min` is the rule, and `_vector_of_rates` leaves to it what
could round in another way.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from outpace.simulation.network.hubs import LONGEST, HubGroup, side_of_hubs
from outpace.simulation.network.max_min import Flow, Resource, connected, max_min
from outpace.support.units import SECOND, Time

FEW: Final = 60  # flows; for fewer, loops are faster
WORTH: Final = 16  # times that a HubGroup must compute rates to be worth its making
_EQUAL: Final = 1 + 1e-9  # shares that differ by less count as equal

_Column = TypeVar("_Column", "array[int]", "array[float]")
Places = NDArray[np.int64]  # of flows in the columns
_Floats = NDArray[np.float64]


class FlowTable:
    """The flows under way, each at a place in the columns from `begin` to `leave`."""

    def __init__(self, few: int = FEW, worth: int = WORTH) -> None:
        self._few, self._worth = few, worth
        self._hub_groups: dict[int, HubGroup] = {}  # by the number of the group
        self._pause = self._longer_pause = 0  # times to compute rates before the next HubGroup
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
        for resource in flow.resources:
            hubs = resource.group
            if hubs is not None:
                if hubs.accepts(flow):
                    hubs.begin(flow, float(size_bytes), now)
                    break
                self._dissolve(hubs)

    def leave(self, flow: Flow) -> None:
        """Remove a flow."""
        flow.leave()
        hubs = flow.resources[0].group
        if hubs is not None:
            hubs.leave(flow)
        place = flow.place
        self._count -= 1
        self._flows[place] = None
        self._group[place] = 0
        for column in self._uses:
            column[place] = 0
        self._free.append(place)

    def due(self, group: int, now: Time) -> list[Flow]:
        """Return the flows of a group that have ended, in the order in which they began."""
        hubs = self._hub_groups.get(group)
        if hubs is not None:
            return hubs.due(now)
        places = _where((self._groups == group) & (self._ends <= now))
        found = [flow for place in places if (flow := self._flows[place]) is not None]
        return sorted(found, key=lambda flow: flow.number)

    def share_out(
        self, first: Resource, group: int, now: Time
    ) -> tuple[set[int | HubGroup], set[int], Time]:
        """Compute the rates of the flows that are linked to a resource, and make them a group.

        Returns:
            The numbers of the resources of these flows, or their `HubGroup`; the groups in which
            they were; and the first end.
        """
        hubs = first.group
        if hubs is not None:
            # Half: a number of flows near the limit does not make a group again and again.
            end = hubs.share_out(now) if 2 * len(hubs.flows) >= self._few else None
            if end is not None:
                before, hubs.number = hubs.number, group
                self._hub_groups[group] = self._hub_groups.pop(before)
                return {hubs}, {before}, end
            self._dissolve(hubs)
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
                ticks = min(left / rate * SECOND + 0.5, LONGEST)
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
    ) -> tuple[set[int | HubGroup], set[int], Time]:
        resources, rates = self._vector_of_rates(places)
        has_simple_rule = rates is not None
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
        ticks = np.minimum(np.maximum(left, 0) / rates * SECOND + 0.5, LONGEST)
        self._ends[where] = now + ticks.astype(np.int64)
        first_end = int(self._ends[places].min())
        if self._pause:
            self._pause -= 1
        elif has_simple_rule:
            self._try_hubs(places, group)
        return set(resources.tolist()), before, first_end

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

    # -- groups with hubs ------------------------------------------------------------

    def _try_hubs(self, places: Places, number: int) -> None:
        """Make the flows at these places, which are linked, a `HubGroup` if its rule holds."""
        used = [column[places] for column in self._used[: self._most]]
        side = side_of_hubs(used, self._capacity[: self._resources])
        if side is None:
            return
        flows = [flow for place in places if (flow := self._flows[place]) is not None]
        hubs = {flow.resources[side]: None for flow in flows}
        group = self._hub_groups[number] = HubGroup(number, hubs, len(flows))
        for flow in flows:
            group.enter(flow)
        group.settle(*(each[places] for each in self._columns))
        if not group.is_linked():
            self._dissolve(group)

    @property
    def _columns(self) -> list[NDArray[Any]]:
        return [self._lefts, self._rates, self._sinces, self._ends]

    def _dissolve(self, hubs: HubGroup) -> None:
        """Take the flows of a group back into the columns."""
        del self._hub_groups[hubs.number]
        hubs.release()
        places = np.array([flow.place for flow in hubs.flows], np.int64)
        columns = hubs.columns
        for mine, column in zip(self._columns, columns, strict=True):
            mine[places] = column
        self._groups[places] = np.where(columns[1] > 0, hubs.number, 0)
        if hubs.times_shared >= self._worth:
            self._longer_pause = 0
        else:
            self._pause = self._longer_pause = min(2 * self._longer_pause + 1, 1024)


def _where(flags: NDArray[Any]) -> Places:
    """Return the places that are not 0; as np.flatnonzero, in less time."""
    return flags.nonzero()[0]


def _longer(column: _Column, more: int) -> _Column:
    return column + array(column.typecode, bytes(column.itemsize * more))
