"""Groups of flows that are all limited at one end, such as those of saturated servers.

A group has hubs, for example the receiving ports of servers. Each of its flows uses one hub; the
other resources of the flows are called leaves. If each flow has the rate capacity / flows of its
hub, and the rates at each leaf come to less than its capacity, these are the max-min fair rates:
each flow has a full resource on which none is faster. `max_min` then finds no leaf full before all
flows of it have their rates, so it takes nothing from a hub before the hub's own turn: it divides
the same two numbers, and the rates are bitwise the same.

To know this takes a few numbers for each hub, and no pass over the flows: `max_min` takes several
for each flow, and so does the search for the flows that are linked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outpace.simulation.network.max_min import Flow, Resource
from outpace.support.units import SECOND, Time

LONGEST: Final = float(2**62)  # ns, 146 years: a flow that takes longer never ends
_CLEAR: Final = 1 - 1e-9  # part of a leaf's capacity below which it is not full, despite rounding
_NEVER: Final = 2**63 - 1  # the end of a flow without a rate


class HubGroup:
    """Linked flows, each of which is limited by one of the hubs.

    Each flow has a row in columns without gaps, so that numpy needs no lists of places.
    """

    def __init__(self, number: int, hubs: Iterable[Resource], flows: int) -> None:
        self.number = number  # of the group
        self.flows: list[Flow] = []  # by row
        self.times_shared = 0
        self._hubs = list(hubs)
        self._rate_of_hub = [0.0] * len(self._hubs)  # bytes/s for each of its flows
        for place, hub in enumerate(self._hubs):
            hub.group, hub.hub = self, place
        self._load = 0.0  # flows / capacity, of no leaf more
        # The first leaf of a flow, its hub: how many flows have both.
        self._reached: dict[Resource, dict[int, int]] = {}
        self._reach = [0] * len(self._hubs)  # first leaves of its flows, by hub
        self._settled = 0  # flows that had a rate when rates were last computed
        size = max(64, 2 * flows)
        self._left, self._rate = array("d", bytes(8 * size)), array("d", bytes(8 * size))
        self._since, self._end = array("q", bytes(8 * size)), array("q", bytes(8 * size))
        self._hub = array("q", bytes(8 * size))
        self._over_columns()

    def _over_columns(self) -> None:
        self._lefts, self._rates = np.frombuffer(self._left), np.frombuffer(self._rate)
        self._sinces, self._ends, self._hub_of = (
            np.frombuffer(each, np.int64) for each in (self._since, self._end, self._hub)
        )

    @property
    def columns(self) -> list[NDArray[Any]]:
        """Bytes to come at a time, bytes/s from then on, that time, and the end; by row."""
        known = len(self.flows)
        return [each[:known] for each in (self._lefts, self._rates, self._sinces, self._ends)]

    def release(self) -> None:
        """Leave the resources to other groups."""
        for flow in self.flows:
            for resource in flow.resources:
                resource.group, resource.hub = None, -1
        for hub in self._hubs:
            hub.group, hub.hub = None, -1

    # -- flows -----------------------------------------------------------------

    def accepts(self, flow: Flow) -> bool:
        """Whether a new flow uses one hub, and beside it leaves of this group or unused ones."""
        hubs = 0
        for resource in flow.resources:
            if resource.group is self:
                hubs += resource.hub >= 0
            elif resource.group is not None or len(resource.flows) > 1:
                return False
        return hubs == 1

    def begin(self, flow: Flow, left: float, now: Time) -> None:
        """Add a flow, which has no rate yet."""
        row = len(self.flows)
        if row == len(self._left):
            self._left, self._rate = _doubled(self._left), _doubled(self._rate)
            self._since, self._end = _doubled(self._since), _doubled(self._end)
            self._hub = _doubled(self._hub)
            self._over_columns()
        self._left[row], self._rate[row], self._since[row] = left, 0.0, now
        self._end[row] = _NEVER
        self.enter(flow)

    def settle(self, *columns: NDArray[Any]) -> None:
        """Give the flows that have entered their bytes to come, rates, times and ends."""
        self._settled = len(self.flows)
        for mine, column in zip(self.columns, columns, strict=True):
            mine[:] = column
        self._rate_of_hub = [hub.capacity / len(hub.flows) for hub in self._hubs]

    def enter(self, flow: Flow) -> None:
        first = None
        for resource in flow.resources:
            if resource.hub >= 0:
                hub = resource.hub
                continue
            if first is None:
                first = resource
            resource.group = self
            load = len(resource.flows) / resource.capacity
            if load > self._load:
                self._load = load
        flow.row = len(self.flows)
        self._hub[flow.row] = hub
        self.flows.append(flow)
        if first is None:
            return
        hubs = self._reached.get(first)
        if hubs is None:
            hubs = self._reached[first] = {}
        if hub not in hubs:
            hubs[hub] = 0
            self._reach[hub] += 1
        hubs[hub] += 1

    def leave(self, flow: Flow) -> None:
        """Remove a flow that has left its resources; the last row takes its place."""
        row, hub, first = flow.row, self._hub[flow.row], None
        if self._rate[row]:
            self._settled -= 1
        for resource in flow.resources:
            if resource.hub >= 0:
                continue
            if first is None:
                first = resource
            if not resource.flows:
                resource.group = None
        last = self.flows.pop()
        if last is not flow:
            self.flows[row] = last
            for numbers in (self._left, self._rate):
                numbers[row] = numbers[last.row]
            for whole in (self._since, self._end, self._hub):
                whole[row] = whole[last.row]
            last.row = row
        if first is None:
            return
        hubs = self._reached[first]
        hubs[hub] -= 1
        if not hubs[hub]:
            del hubs[hub]
            self._reach[hub] -= 1
            if not hubs:
                del self._reached[first]

    def due(self, now: Time) -> list[Flow]:
        """Return the flows that have ended, in the order in which they began."""
        rows = (self._ends[: len(self.flows)] <= now).nonzero()[0]
        return sorted([self.flows[row] for row in rows], key=lambda flow: flow.number)

    # -- rates -----------------------------------------------------------------

    def is_linked(self) -> bool:
        """Whether all flows are certainly linked.

        Two hubs have a leaf in common if they reach more leaves together than there are. If each
        has one in common with the hub that reaches most, all are linked. False: that is not known.
        """
        return len(self._hubs) == 1 or max(self._reach) + min(self._reach) > len(self._reached)

    def share_out(self, now: Time) -> Time | None:
        """Compute the rates and return the first end; None: the rule for this group may not hold.

        It holds while the flows are linked, no leaf can be full, and a flow of the group is left
        for which rates were computed before.
        """
        if not (self._settled and self.is_linked()):
            return None
        of_hub = [hub.capacity / len(hub.flows) for hub in self._hubs]
        if self._load * max(of_hub) >= _CLEAR:
            return None
        before, self._rate_of_hub = self._rate_of_hub, of_hub
        known = self._settled = len(self.flows)
        self.times_shared += 1
        rates, old = np.array(of_hub)[self._hub_of[:known]], self._rates[:known]
        if all(rate != other for rate, other in zip(of_hub, before, strict=True)):
            self._change(slice(known), old, rates, now)
        else:
            rows = (rates != old).nonzero()[0]
            self._change(rows, old[rows], rates[rows], now)
        return int(self._ends[:known].min())

    def _change(self, rows: Any, old: Any, rates: NDArray[np.float64], now: Time) -> None:
        """Give these rows new rates, with the arithmetic of `FlowTable`, in place."""
        numbers = (now - self._sinces[rows]) * old
        numbers /= SECOND
        np.subtract(self._lefts[rows], numbers, out=numbers)
        self._lefts[rows], self._rates[rows], self._sinces[rows] = numbers, rates, now
        np.maximum(numbers, 0, out=numbers)
        numbers /= rates
        numbers *= SECOND
        numbers += 0.5
        np.minimum(numbers, LONGEST, out=numbers)
        self._ends[rows] = numbers.astype(np.int64) + now


def side_of_hubs(used: Sequence[NDArray[np.int64]], capacity: NDArray[np.float64]) -> int | None:
    """Return which of their resources could be the hubs of linked flows; None: the rule fails.

    Args:
        used: The numbers of the first, second, and third resource of each flow; 0: none.
        capacity: By the number of the resource.
    """
    for side, column in enumerate(used):
        users = np.bincount(column, minlength=len(capacity))
        if users[0]:
            continue  # some flow has no such resource
        hubs = users.nonzero()[0]
        load = np.zeros(len(capacity), np.int64)
        for other in (*used[:side], *used[side + 1 :]):
            load += np.bincount(other, minlength=len(capacity))
        load[0] = 0
        fastest = (capacity[hubs] / users[hubs]).max()
        if not load[hubs].any() and (load / capacity).max() * fastest < _CLEAR:
            return side
    return None


def _doubled(column: Any) -> Any:
    return column + column
