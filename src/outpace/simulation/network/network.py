"""The common part of networks of either contention: nodes, arrival, delays, the message log."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from outpace.cluster.delays import Lateness
from outpace.cluster.machines import Machines
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.cluster.paths import Paths
from outpace.kernel import Kernel, Mailbox
from outpace.simulation.network.delays import Delays
from outpace.simulation.network.links import Links, Log, Nic, Node, NodePath, Transfer
from outpace.simulation.network.obstacles import Obstacles
from outpace.support.units import Time, nanoseconds


class Network(ABC):
    """Carries messages between nodes.

    Messages that arrive at the same time over the same link (a pull behind its push) share one
    event. Messages between two nodes of one machine do not use its connection: they arrive at once,
    or take the time of its loopback interface.

    Attributes:
        paths: latencies and bandwidths between nodes; None: messages take no time.

    Args:
        law: Latencies and bandwidths; None: messages take no time.
        log: Called with each message that has arrived.
        machines: Which nodes share a machine; None: those that the law names.
        seed: For the random delays of `law.delays`.

    Raises:
        ConfigError: if the law does not fit the nodes.
    """

    def __init__(
        self,
        kernel: Kernel,
        law: NetworkLaw | None = None,
        log: Log | None = None,
        *,
        machines: Machines | None = None,
        seed: int = 0,
    ) -> None:
        self.messages = 0
        self.bytes_sent = 0  # over the network, so without messages within a machine
        self._kernel, self._log = kernel, log
        self.paths = None if law is None else Paths(law, machines)
        self._nodes: dict[str, Node] = {}
        self._machine_of: Mapping[str, int | str] = {} if law is None else law.places
        if machines is not None:
            self._machine_of = machines.of_nodes()
        self._sent = 0
        self._nics: dict[int | str, Nic] = {}
        self._loopbacks: dict[int | str, Nic] = {}
        self._delays: Delays | None = None
        if law is not None and law.delays and machines is not None:
            self._delays = Delays(kernel, Lateness(law.delays, seed, machines), self._put)
        self._obstacles: Obstacles | None = None
        self._plain = log is None and self._delays is None
        self._arrives = self._arrive  # kept: each `self._arrive` would make an object

    def join(self, name: str) -> Mailbox[Any]:
        """Add a node, or let another process take the place of one that was cut off."""
        known = self._nodes.get(name)
        return self.add(name) if known is None else known.mailbox

    def add(self, name: str) -> Mailbox[Any]:
        """Add a node and return the mailbox in which its messages arrive.

        Raises ValueError if there is a node of that name.
        """
        if name in self._nodes:
            raise ValueError(f"there already is a node {name!r}")
        machine = self._machine_of.get(name, name)
        if machine not in self._nics:
            bandwidth = math.inf if self.paths is None else self.paths.bandwidth(name)
            self._nics[machine] = Nic(bandwidth)
        mailbox = Mailbox[Any](self._kernel, f"the mailbox of {name}")
        node = self._nodes[name] = Node(name, mailbox, self._nics[machine])
        node.links = Links(partial(self._connect, node))
        return mailbox

    def links_of(self, name: str) -> Links:
        """Return the paths on which a node sends. Raises KeyError for an unknown node."""
        return self._nodes[name].links

    def send(
        self,
        sender: str,
        receiver: str,
        message: object,
        size_bytes: int,
        duration: Time | None = None,
    ) -> None:
        """Send a message; messages from one node to another stay in order.

        `duration`: nanoseconds for which it occupies both ends, in a serialised network; by default
        they follow from its size. Raises KeyError for an unknown node.
        """
        self.carry(self._nodes[sender].links[receiver], message, size_bytes, duration)

    def carry(
        self,
        link: NodePath,
        message: object,
        size_bytes: int,
        duration: Time | None = None,
        followers: Sequence[object] = (),
    ) -> None:
        """Send a message on a path; see `send`. followers: leave with it, and have no bytes."""
        self._sent += 1
        self.messages += 1
        now = self._kernel.now
        first = last = Transfer(link, message, size_bytes, now, duration, self._sent)
        for follower in followers:
            self.messages += 1
            last.after = last = Transfer(link, follower, 0, now)
        if not link.local:
            self.bytes_sent += size_bytes
        self._queue(first)

    # -- failures ----------------------------------------------------------------

    def cut(self, name: str) -> None:
        """Drop what is on its way from and to a node, because its process has ended.

        What another process sends in its place takes new paths.
        """
        node = self._nodes.get(name)
        if node is None:
            return  # its messages are not simulated one by one
        links = list(node.links.values())
        node.links.clear()
        links += [link for each in self._nodes.values() if (link := each.links.pop(name, None))]
        for link in links:
            link.put, link.is_cut = _nowhere, True
            self._abandon(link)
        node.mailbox.clear()

    @abstractmethod
    def _abandon(self, link: NodePath) -> None:
        """Forget what has not left its sender on a path that was cut."""

    @property
    def obstacles(self) -> Obstacles:
        """A rule that holds messages up on their way."""
        if self._obstacles is None:
            self._obstacles, self._plain = Obstacles(self._kernel, self._put), False
        return self._obstacles

    def obstacles_among(self, names: Sequence[str]) -> Obstacles | None:
        """Return what holds up messages among these nodes; None: nothing does."""
        if len({self._machine_of.get(name, name) for name in names}) <= 1:
            return None
        return self._obstacles

    # ----------------------------------------------------------------------------

    @abstractmethod
    def _queue(self, transfer: Transfer) -> None:
        """Start a transfer as soon as its turn has come."""

    @property
    def is_logged(self) -> bool:
        return self._log is not None

    def note(
        self, sender: str, receiver: str, message: object, size_bytes: int, started: Time
    ) -> None:
        """Log a message that arrives now although it was not sent: a formula gave its times."""
        if self._log is None:
            return
        transfer = Transfer(self.links_of(sender)[receiver], message, size_bytes, started)
        transfer.started, transfer.delivered = started, self._kernel.now
        self._log(transfer)

    def _connect(self, source: Node, receiver: str) -> NodePath:
        target, sender = self._nodes[receiver], source.name
        local = source.nic is target.nic and source is not target
        paths = self.paths
        if paths is None:
            return NodePath(source, target, 0, math.inf, local)
        if not local:
            latency, limit = paths.latency(sender, receiver), paths.limit(sender, receiver)
            return NodePath(source, target, latency, limit, local)
        law, machine = paths.loopback or LinkLaw(), self._machine_of[sender]
        if machine not in self._loopbacks:
            self._loopbacks[machine] = Nic(law.bandwidth_bytes_per_s or math.inf)
        latency, nic = nanoseconds(law.latency_s or 0.0), self._loopbacks[machine]
        return NodePath(source, target, latency, math.inf, local, loopback=nic)

    def _arrive_after(self, delay: Time, first: Transfer) -> None:
        """Let a message arrive after so long, and with it those that leave behind it."""
        link, kernel = first.link, self._kernel
        arrival, last = kernel.now + delay, first
        while last.after is not None:
            last = last.after
            last.started = arrival - link.latency
        if link.last is not None and link.arrival == arrival:
            link.last.after, link.last = first, last
        elif delay:
            link.last, link.arrival = last, arrival
            kernel.call_after(delay, self._arrives, first)
        else:
            self._arrive(first)

    def _arrive(self, first: Transfer) -> None:
        link = first.link
        last = first
        each: Transfer | None = first
        while each is not None:
            if self._plain:
                link.put(each.message)
            else:
                self._deliver(each)
            last, each = each, each.after
        if link.last is last:
            link.last = None

    def _deliver(self, transfer: Transfer) -> None:
        """Take a message out of the network; obstacles and delays may hold it back."""
        if self._obstacles is not None and self._obstacles.take(transfer):
            return
        if self._delays is not None and not transfer.link.local:
            self._delays(transfer)
        else:
            self._put(transfer)

    def _put(self, transfer: Transfer) -> None:
        transfer.link.put(transfer.message)
        if self._log is not None and not transfer.link.is_cut:
            transfer.delivered = self._kernel.now
            self._log(transfer)


def _nowhere(message: object) -> None:
    """Drop a message."""
