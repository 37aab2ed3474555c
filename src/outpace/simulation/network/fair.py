"""The network with `fair` contention: messages that meet share bandwidth, max-min fair.

Messages are fluid: each flow has a rate, and rates change when flows begin or end. A
machine sends and receives at once, each with its bandwidth, which all its nodes share; a
pair's own limit is a third resource that a flow may use. A flow begins when it is sent,
whatever else is under way; only messages from one sender to one receiver go one after
another, as on a TCP connection, so that a pull stays behind its push. A message arrives its
latency after its last byte.

This is the flow-level model of SimGrid with its original constants, CM02 (Casanova,
Legrand, Quinson et al.; Casanova and Marchal 2002): a lone flow takes latency + size /
bandwidth, and n flows over one link get a share of it each. SimGrid's default, LV08,
further multiplies latency by 13.01 and bandwidth by 0.97 to imitate TCP's slow start and
headers; this network does not.

A change affects only the flows linked to it by shared resources. Their rates are computed
once per instant, after everything that happens in it, and an alarm is set for the first
flow that ends. Ends are whole nanoseconds; a flow has ended when that time has come,
whatever rounding has left of its bytes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from outpace.kernel import Alarm
from outpace.simulation.network.flow_table import FlowTable
from outpace.simulation.network.hubs import HubGroup
from outpace.simulation.network.links import Nic, NodePath, Transfer
from outpace.simulation.network.max_min import Flow, Resource
from outpace.simulation.network.network import Network


@dataclass(slots=True, eq=False)
class _Channel:
    """The messages from one sender to one receiver; the first one is under way."""

    resources: tuple[Resource, ...]  # none: infinitely fast
    queue: deque[Transfer] = field(default_factory=deque)
    flow: Flow | None = None  # of the first message, if it takes time


class FairNetwork(Network):
    """A network whose nodes share their bandwidth among all messages under way."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ports: dict[Nic, tuple[Resource, Resource]] = {}  # sending, receiving
        self._channels: dict[NodePath, _Channel] = {}
        self._flows = FlowTable()
        self._flow_numbers = count()
        self._groups = count(1)  # of flows whose rates were computed together
        self._alarms: dict[int, Alarm] = {}  # by group, for the first flow that ends
        self._changed: dict[Resource, None] = {}  # since rates were computed

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
        resource = self._flows.resource
        for nic in (link.source, link.target):
            if nic not in self._ports:
                self._ports[nic] = resource(nic.bandwidth), resource(nic.bandwidth)
        uses = [self._ports[link.source][0], self._ports[link.target][1]]
        if link.limit < math.inf:
            uses.append(resource(link.limit))
        return tuple(each for each in uses if each.capacity < math.inf)

    def _abandon(self, link: NodePath) -> None:
        channel = self._channels.pop(link, None)
        if channel is not None and channel.flow is not None:
            self._flows.leave(channel.flow)
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
                self._flows.begin(flow, transfer.size_bytes, now)
                self._note_change(flow)
                return
            self._depart(queue.popleft())

    def _end(self, flow: Flow) -> None:
        self._flows.leave(flow)
        self._note_change(flow)
        channel = self._channels[flow.carries.link]
        channel.flow = None
        self._depart(channel.queue.popleft())
        self._start_next(channel)

    def _depart(self, transfer: Transfer) -> None:
        """The last byte has left: the message arrives a latency later."""
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
        done: set[int | HubGroup | None] = set()  # numbers of resources; groups
        kernel = self._kernel
        for resource in changed:
            if not resource.flows or resource.number in done or resource.group in done:
                continue
            group = next(self._groups)
            linked, before, first = self._flows.share_out(resource, group, kernel.now)
            done.update(linked)
            for other in before:
                if (alarm := self._alarms.pop(other, None)) is not None:
                    kernel.call_off(alarm)
            self._alarms[group] = kernel.set_alarm(first, partial(self._end_due, group))

    def _end_due(self, group: int) -> None:
        del self._alarms[group]
        for flow in self._flows.due(group, self._kernel.now):
            if not flow.carries.link.is_cut:
                self._end(flow)
