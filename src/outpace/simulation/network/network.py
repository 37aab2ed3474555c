"""The common part of networks of either contention: nodes, arrival, delays, the message log."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from outpace.cluster.delays import Lateness
from outpace.cluster.machines import Machines
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.cluster.paths import Paths
from outpace.kernel import Kernel, Mailbox
from outpace.simulation.network.delays import Delays
from outpace.simulation.network.links import Log, Message, Nic, Node, NodePath, Transfer
from outpace.support.units import Time, nanoseconds


class Network(ABC):
    """Carries messages between nodes.

    Messages that arrive at the same time over the same link (a pull behind its push) share one
    event. Messages between two nodes of one machine do not use the machine's connection: they
    arrive at once, or take the time of the loopback interface.

    Attributes:
        paths: latencies and bandwidths between nodes; None: messages take no time.

    Args:
        law: Latencies and bandwidths; None: messages take no time.
        log: Called with each message that has arrived.
        machines: Which nodes share a machine; None: as the law says.
        seed: Seed of the random delays of `law.delays`.

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
        self._plain = log is None and self._delays is None

    def join(self, name: str) -> Node:
        """Return the node of this name, which is added if there is none.

        A new process may join under the name of a process that was cut off.
        """
        node = self._nodes.get(name)
        if node is None:
            machine = self._machine_of.get(name, name)
            if machine not in self._nics:
                bandwidth = math.inf if self.paths is None else self.paths.bandwidth(name)
                self._nics[machine] = Nic(bandwidth)
            mailbox = Mailbox[Any](self._kernel, f"the mailbox of {name}")
            node = self._nodes[name] = Node(name, mailbox, self._nics[machine])
        return node

    def send(
        self,
        sender: Node,
        receiver: str,
        message: Message,
        *others: Message,
        duration: Time | None = None,
    ) -> None:
        """Send messages; messages from one node to another keep their order.

        Args:
            message: the first message, which may have bytes.
            others: further messages, which are sent together with it and have no bytes.
            duration: nanoseconds for which the message occupies both ends, in a serialised network;
                by default the duration follows from its bytes.

        Raises:
            KeyError: if there is no such receiver.
            ValueError: if another message than the first can have bytes.
        """
        try:
            link = sender.links[receiver]
        except KeyError:
            link = sender.links[receiver] = self._connect(sender, receiver)
        self._sent += 1
        self.messages += message.is_counted
        now, size_bytes = self._kernel.now, message.nbytes
        first = last = Transfer(link, message, size_bytes, now, duration, self._sent)
        for other in others:
            if other.may_have_bytes:
                kind = type(other).__name__
                raise ValueError(f"a {kind} has bytes: send it before the others, or by itself")
            self.messages += 1
            last.after = last = Transfer(link, other, 0, now)
        if not link.local:
            self.bytes_sent += size_bytes
        self._queue(first)

    # -- failures ----------------------------------------------------------------

    def cut(self, name: str) -> None:
        """Drop messages from and to a node that have not arrived, because its process has ended.

        Messages of its successor use new paths.
        """
        node = self._nodes.get(name)
        if node is None:
            return  # the messages of a formula are not simulated one by one
        links = list(node.links.values())
        node.links.clear()
        links += [link for each in self._nodes.values() if (link := each.links.pop(name, None))]
        for link in links:
            link.put, link.is_cut = _nowhere, True
            self._abandon(link)
        node.mailbox.clear()

    @abstractmethod
    def _abandon(self, link: NodePath) -> None:
        """Forget the messages that have not left their sender on a path that was cut."""

    # ----------------------------------------------------------------------------

    @abstractmethod
    def _queue(self, transfer: Transfer) -> None:
        """Start a transfer as soon as its turn has come."""

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
        """Let a message arrive after a delay, together with the messages that leave behind it."""
        link, kernel = first.link, self._kernel
        arrival, last = kernel.now + delay, first
        while last.after is not None:
            last = last.after
            last.started = arrival - link.latency
        if link.last is not None and link.arrival == arrival:
            link.last.after, link.last = first, last
        elif delay:
            link.last, link.arrival = last, arrival
            kernel.call_at(arrival, self._arrive, first)
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
        """Take a message out of the network; `delays` may hold it back."""
        if self._delays is not None and not transfer.link.local:
            self._delays(transfer)
        else:
            self._put(transfer)

    def _put(self, transfer: Transfer) -> None:
        transfer.link.put(transfer.message)
        if self._log is not None and not transfer.link.is_cut:
            transfer.delivered = self._kernel.now
            self._log(transfer)


def _nowhere(message: Message) -> None:
    """Drop a message."""
