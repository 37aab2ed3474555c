"""The network with `fair` contention: messages that meet share bandwidth, max-min fair.

Messages are fluid: each flow has a rate, and rates change when flows begin or end. A machine can
send and receive at the same time. Each direction has its bandwidth, which all nodes of the machine
share; the limit of a pair of nodes is a third resource that a flow may use. A flow begins when it
is sent, independently of other flows. Only messages from one sender to one receiver are sent one
after another, as on a TCP connection, so that a pull stays behind its push. A message arrives one
latency after its last byte.

This is the flow-level model of SimGrid with its original constants, CM02 (Casanova, Legrand,
Quinson et al.; Casanova and Marchal 2002): a single flow takes latency + size / bandwidth, and n
flows over one link get equal shares of it. SimGrid's default, LV08, further multiplies latency by
13.01 and bandwidth by 0.97 to imitate TCP's slow start and headers; this network does not.

A change affects only the flows that are connected with it by shared resources. Their rates are
computed once at each point in time, after all other events, and an alarm is set for the first flow
that ends. Ends are whole nanoseconds; at that time a flow has ended, even if rounding has left a
part of its bytes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any, Final

from outpace.kernel import Alarm
from outpace.simulation.network.links import Nic, NodePath, Transfer
from outpace.simulation.network.max_min import Flow, Resource, connected, max_min
from outpace.simulation.network.network import Network
from outpace.support.units import SECOND

_LONGEST: Final = float(2**62)  # ns, 146 years: a flow that takes longer never ends


@dataclass(slots=True, eq=False)
class _Channel:
    """The messages from one sender to one receiver; the first message is being sent."""

    resources: tuple[Resource, ...]  # empty: the channel is infinitely fast
    queue: deque[Transfer] = field(default_factory=deque)
    flow: Flow | None = None  # flow of the first message, if the message takes time


@dataclass(slots=True, eq=False)
class _Group:
    """Connected flows, whose rates were computed together."""

    flows: list[Flow]
    alarm: Alarm | None = None  # rings when the first of these flows ends


class FairNetwork(Network):
    """A network whose nodes divide their bandwidth among all messages that are being sent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ports: dict[Nic, tuple[Resource, Resource]] = {}  # sending, receiving
        self._channels: dict[NodePath, _Channel] = {}
        self._flow_numbers = count()
        self._changed: dict[Resource, None] = {}  # changed resources since rates were last computed

    def _queue(self, transfer: Transfer) -> None:
        link = transfer.link
        channel = self._channels.get(link)
        if channel is None:
            channel = self._channels[link] = _Channel(self._resources(link))
        channel.queue.append(transfer)
        if len(channel.queue) == 1:
            self._start_next(channel)

    def _resources(self, link: NodePath) -> tuple[Resource, ...]:
        """Return the resources with finite capacity that the link uses."""
        for nic in (link.source, link.target):
            if nic not in self._ports:
                self._ports[nic] = Resource(nic.bandwidth), Resource(nic.bandwidth)
        uses = [self._ports[link.source][0], self._ports[link.target][1]]
        if link.limit < math.inf:
            uses.append(Resource(link.limit))
        return tuple(each for each in uses if each.capacity < math.inf)

    def _abandon(self, link: NodePath) -> None:
        channel = self._channels.pop(link, None)
        if channel is not None and channel.flow is not None:
            channel.flow.leave()
            self._note_change(channel.flow)

    # -- flows -----------------------------------------------------------------

    def _start_next(self, channel: _Channel) -> None:
        """Start the first message of the queue, and before it those that take no time."""
        queue, now = channel.queue, self._kernel.now
        while queue:
            transfer = queue[0]
            transfer.started = now
            if transfer.size_bytes and channel.resources:
                flow = channel.flow = Flow(channel.resources, transfer, next(self._flow_numbers))
                flow.left, flow.since = float(transfer.size_bytes), now
                self._note_change(flow)
                return
            self._depart(queue.popleft())

    def _end(self, flow: Flow) -> None:
        flow.leave()
        self._note_change(flow)
        channel = self._channels[flow.carries.link]
        channel.flow = None
        self._depart(channel.queue.popleft())
        self._start_next(channel)

    def _depart(self, transfer: Transfer) -> None:
        """Let a message arrive one latency from now, because its last byte has been sent."""
        self._arrive_after(transfer.link.latency, transfer)

    # -- rates -----------------------------------------------------------------

    def _note_change(self, flow: Flow) -> None:
        if not self._changed:
            # Late: rates are computed once for everything that happens now.
            self._kernel.call_at(self._kernel.now, self._share_out, late=True)
        for resource in flow.resources:
            self._changed[resource] = None

    def _share_out(self, _: object) -> None:
        """Compute the rates of all flows that a change may affect."""
        changed, self._changed = self._changed, {}
        done: set[Resource] = set()
        for resource in changed:
            if resource.flows and resource not in done:
                linked = connected(resource)
                done.update(linked)
                self._set_rates(max_min(linked))

    def _set_rates(self, rates: dict[Flow, float]) -> None:
        """Give flows their rates, and set an alarm for the first one that ends."""
        now, group = self._kernel.now, _Group(list(rates))
        for former in {flow.group for flow in rates}:  # in any order: alarms are only cancelled
            if former is not None and former.alarm is not None:
                self._kernel.call_off(former.alarm)
                former.alarm = None
        first = None
        for flow, rate in rates.items():
            flow.group = group
            # A flow whose rate has not changed keeps its end, which would otherwise be rounded
            # again at each change of another flow.
            if rate != flow.rate:
                left = flow.left - flow.rate * (now - flow.since) / SECOND
                flow.left, flow.rate, flow.since = left, rate, now
                ticks = min(left / rate * SECOND + 0.5, _LONGEST)
                flow.end = now + int(ticks) if left > 0 else now
            if first is None or flow.end < first:
                first = flow.end
        if first is not None:
            group.alarm = self._kernel.set_alarm(first, partial(self._end_due, group))

    def _end_due(self, group: _Group) -> None:
        group.alarm = None
        now = self._kernel.now
        due = [flow for flow in group.flows if flow.group is group and flow.end <= now]
        # In the order in which the flows began: the order of the group depends on the resource
        # from which the group was found.
        for flow in sorted(due, key=attrgetter("number")):
            if not flow.carries.link.is_cut:
                self._end(flow)
