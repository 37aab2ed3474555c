"""The network in virtual time, `fair` contention: who meets shares, max-min.

Messages are fluid: each flow has a rate, and rates change when flows begin or end. A
machine sends and receives at once, each with its bandwidth; a pair's own limit is a third
thing that a flow may use. A flow begins when it is sent, whatever else is under way; only
the messages of one sender to one receiver go one after another, as on a TCP connection,
so that a pull stays behind its push. It arrives its latency after its last byte.

This is the flow-level model of SimGrid with its original constants, CM02 (Casanova,
Legrand, Quinson et al.; Casanova and Marchal 2002): a lone flow takes latency + size /
bandwidth, and n flows over one link get a share of it each. SimGrid's default, LV08,
further multiplies latency by 13.01 and bandwidth by 0.97 to imitate TCP's slow start and
headers; we do not.

A change concerns only the flows linked to it by things they share. Their rates are made
once per instant, after all that happens in it, and the first of them to end is awaited.
Ends are whole nanoseconds; a flow is through when its time has come, whatever rounding
has left of its bytes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import count
from typing import Any

from outpace.cluster import Machines, NetworkLaw
from outpace.errors import ConfigError
from outpace.kernel import Alarm, Kernel
from outpace.simulation.network.links import Link, Nic, Transfer
from outpace.simulation.network.serialised import Log, Network
from outpace.support.units import SECOND, Time


class Resource:
    """What flows share: one direction of a machine's connection, or the limit of a pair."""

    __slots__ = ("_left", "_open", "capacity", "flows")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity  # bytes/s
        self.flows: dict[Flow, None] = {}  # that use it, in order
        self._left, self._open = 0.0, 0  # what `max_min` has not given away, and to how many


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
        self.rate = 0.0  # bytes/s, since `since`, when `left` bytes were to come
        self.left, self.since = float(size_bytes), since
        self.end: Time = 0  # at that rate
        self.group: _Group | None = None
        for resource in resources:
            resource.flows[self] = None

    def leave(self) -> None:
        """Its resources are for others now."""
        for resource in self.resources:
            del resource.flows[self]

    def set_rate(self, rate: float, now: Time) -> None:
        left = self.left - self.rate * (now - self.since) / SECOND
        self.left, self.rate, self.since = left, rate, now
        self.end = now + int(left / rate * SECOND + 0.5) if left > 0 else now


def max_min(resources: Iterable[Resource]) -> dict[Flow, float]:
    """The max-min fair rates (bytes/s) of the flows that use these resources and no others.

    No rate can grow but at the cost of one that is not larger. By progressive filling
    (Bertsekas and Gallager, Data Networks, section 6.5.2): all rates grow alike until a
    resource is full; its flows keep theirs and the others grow on.
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
        if full > rate:  # it gained by flows that were kept below it
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
    """This resource and all that flows link to it, directly or through others."""
    found = {first: None}
    todo = [first]
    for resource in todo:  # which grows meanwhile
        for flow in resource.flows:
            for other in flow.resources:
                if other not in found:
                    found[other] = None
                    todo.append(other)
    return found


class _Group:
    """Flows whose rates were made together, and the alarm for the first that ends."""

    __slots__ = ("alarm", "flows")

    def __init__(self, flows: list[Flow]) -> None:
        self.flows = flows
        self.alarm: Alarm


class _Channel:
    """From one sender to one receiver: what is under way, and what waits behind it."""

    __slots__ = ("queue", "resources")

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self.resources = resources  # none: infinitely fast
        self.queue: deque[Transfer] = deque()


class FairNetwork(Network):
    """See the head of this file."""

    def __init__(
        self,
        kernel: Kernel,
        law: NetworkLaw,
        log: Log | None = None,
        *,
        machines: Machines | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(kernel, law, log, machines=machines, seed=seed)
        self._ports: dict[Nic, tuple[Resource, Resource]] = {}  # sending, receiving
        self._channels: dict[Link, _Channel] = {}
        self._numbers = count()
        self._changed: dict[Resource, None] = {}  # since rates were made

    def send(
        self,
        sender: str,
        receiver: str,
        message: object,
        size_bytes: int,
        duration: Time | None = None,
    ) -> None:
        """Start a flow of so many bytes, behind those from this sender to this receiver.

        Raises KeyError for an unknown node, ConfigError for a duration: that is for those
        who have a connection to themselves.
        """
        if duration is not None:
            raise ConfigError(
                f"{sender}: a message of a given delay needs both ends to itself, and with "
                "contention: fair they are shared; send data of that many bytes, or use serialised"
            )
        self.messages += 1
        link = self._nodes[sender].links.get(receiver) or self._connect(sender, receiver)
        transfer = Transfer(link, message, size_bytes, 0, self._kernel.now)
        if link.at_once:
            self._hand_over(transfer)
            return
        self.bytes_sent += size_bytes
        channel = self._channels.get(link)
        if channel is None:
            channel = self._channels[link] = _Channel(self._resources(link))
        channel.queue.append(transfer)
        if len(channel.queue) == 1:
            self._start_next(channel)

    def _resources(self, link: Link) -> tuple[Resource, ...]:
        """Those that are finite, of what the link goes over."""
        for nic in (link.source, link.target):
            if nic not in self._ports:
                self._ports[nic] = Resource(nic.bandwidth), Resource(nic.bandwidth)
        ends = self._ports[link.source][0], self._ports[link.target][1]
        return tuple(r for r in (*ends, Resource(link.limit)) if r.capacity < math.inf)

    # -- flows -----------------------------------------------------------------

    def _start_next(self, channel: _Channel) -> None:
        """The first of the queue begins; those that take no time go with it."""
        queue, now = channel.queue, self._kernel.now
        while queue:
            transfer = queue[0]
            transfer.started = now
            if transfer.size_bytes and channel.resources:
                flow = Flow(
                    channel.resources, transfer, transfer.size_bytes, now, next(self._numbers)
                )
                self._changes(flow)
                return
            queue.popleft()
            self._start(transfer)  # of no duration: it arrives a latency later

    def _end(self, flow: Flow) -> None:
        flow.leave()
        self._changes(flow)
        channel = self._channels[flow.carries.link]
        self._start(channel.queue.popleft())
        self._start_next(channel)

    # -- rates -----------------------------------------------------------------

    def _changes(self, flow: Flow) -> None:
        if not self._changed:
            # Late: once for all that happens now.
            self._kernel.call_at(self._kernel.now, self._share_out, late=True)
        for resource in flow.resources:
            self._changed[resource] = None

    def _share_out(self, _: object) -> None:
        """Make the rates of all flows that a change may concern."""
        changed, self._changed = self._changed, {}
        done: dict[Resource, None] = {}
        for resource in changed:
            if resource.flows and resource not in done:
                linked = connected(resource)
                done |= linked
                self._regroup(max_min(linked))

    def _regroup(self, rates: dict[Flow, float]) -> None:
        kernel, now = self._kernel, self._kernel.now
        group, before = _Group(list(rates)), None
        first: Time | None = None
        for flow, rate in rates.items():
            if flow.group is not before and flow.group is not None:
                before = flow.group
                kernel.call_off(before.alarm)
            flow.group = group
            if rate != flow.rate:
                flow.set_rate(rate, now)
            if first is None or flow.end < first:
                first = flow.end
        assert first is not None
        group.alarm = kernel.set_alarm(first, partial(self._end_due, group))

    def _end_due(self, group: _Group) -> None:
        now = self._kernel.now
        due = [flow for flow in group.flows if flow.end <= now]
        group.flows = []  # the others get a new group; these do not keep themselves alive
        due.sort(key=lambda flow: flow.number)  # who began first
        for flow in due:
            self._end(flow)


def network_of(
    law: NetworkLaw | None,
    kernel: Kernel,
    log: Log | None = None,
    *,
    machines: Machines | None = None,
    seed: int = 0,
) -> Network:
    """A network of the contention that the law names. Raises ConfigError as `Network` does."""
    if law is not None and law.contention == "fair":
        return FairNetwork(kernel, law, log, machines=machines, seed=seed)
    return Network(kernel, law, log, machines=machines, seed=seed)
