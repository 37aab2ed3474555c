"""The network in virtual time, `serialised` contention (Zhang et al., section 3.2).

(The other one is in `fair`, which uses all of this but `send` and its queues.)

Nodes compute, send and receive independently. A node sends one message at a time and
receives one at a time; two nodes of one machine do so between them. A transfer occupies
both ends for bytes / bandwidth. Latency comes after it and occupies nobody. A sender that
is free looks through its queue from the front, takes the first message whose receiver is
free, and asks the busy ones it passed over to be told; a receiver that becomes free tells
the first who asked and is not sending. So a receiver tells in O(1), and messages of one
sender to one receiver stay in order, as their latencies are equal. A message without
tensors takes its turn like any other, and no time.

A transfer is one event, its delivery; what arrives with another of the same link (a pull
behind its push) shares its event. That its ends are free again is only a time; an event
is made of it where somebody waits for it. While such a *wake* is due, the end
counts as busy, so nobody who comes at that very moment gets in front of who waited.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from outpace.cluster import Lateness, Machines, NetworkLaw, Paths
from outpace.kernel import Kernel, Mailbox
from outpace.simulation.network.delays import Delays
from outpace.simulation.network.links import Link, Nic, Node, Transfer
from outpace.support.units import Time

Log: TypeAlias = Callable[[Transfer], None]


class Network:
    """Carries messages between nodes. Without a law it takes no time at all.

    machines: which nodes share one; left out, none do. What goes from one node of a machine
    to the other does not use the network: it is there at once. seed: of `law.delays`.
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
        """Raises ConfigError where the law does not fit the nodes."""
        self.messages = 0
        self.bytes_sent = 0  # over the network
        self._kernel, self._log = kernel, log
        self._paths = None if law is None else Paths(law, machines)
        self._nodes: dict[str, Node] = {}
        self._machine_of = {} if machines is None else machines.of_nodes()
        self._nics: dict[int | str, Nic] = {}
        self._delays: Delays | None = None
        if law is not None and law.delays and machines is not None:
            self._delays = Delays(kernel, Lateness(law.delays, seed, machines), self._put)
        self._plain = log is None and self._delays is None

    def add(self, name: str) -> Mailbox[Any]:
        """A node of this name; what is sent to it arrives in the mailbox.

        Raises ValueError if there is one of that name.
        """
        if name in self._nodes:
            raise ValueError(f"there already is a node {name!r}")
        machine = self._machine_of.get(name, name)
        if machine not in self._nics:
            bandwidth = math.inf if self._paths is None else self._paths.bandwidth(name)
            self._nics[machine] = Nic(bandwidth)
        mailbox = Mailbox[Any](self._kernel, f"the mailbox of {name}")
        self._nodes[name] = Node(name, mailbox, self._nics[machine])
        return mailbox

    def send(
        self,
        sender: str,
        receiver: str,
        message: object,
        size_bytes: int,
        duration: Time | None = None,
    ) -> None:
        """Queue a message; it occupies both ends for `duration`, or as long as its size takes.

        Raises KeyError for an unknown node.
        """
        self.messages += 1
        link = self._nodes[sender].links.get(receiver)
        if link is None:
            link = self._connect(sender, receiver)
        now = self._kernel.now
        if duration is None:
            if size_bytes == link.size:  # most are of one size
                duration = link.duration
            else:
                duration = link.duration_of(size_bytes) if size_bytes else 0
        transfer = Transfer(link, message, size_bytes, duration, now)
        if link.at_once:
            self._hand_over(transfer)
            return
        self.bytes_sent += size_bytes
        source = link.source
        if source.send_wake:
            source.outbox.append(transfer)
        elif now < source.sending_until:
            source.outbox.append(transfer)
            self._wake_sender_later(source)
        elif now < link.target.receiving_until or link.target.receive_wake:
            source.outbox.append(transfer)
            if not link.asked:
                self._ask(link)
        else:
            transfer.started = now
            self._start(transfer)

    @property
    def is_logged(self) -> bool:
        """Is there somebody who keeps every message's times?"""
        return self._log is not None

    def note(
        self, sender: str, receiver: str, message: object, size_bytes: int, started: Time
    ) -> None:
        """Log a message that arrives now, and was not sent by `send`: a formula knew its times."""
        if self._log is None:
            return
        link = self._nodes[sender].links.get(receiver) or self._connect(sender, receiver)
        transfer = Transfer(link, message, size_bytes, self._kernel.now - started, started)
        transfer.started, transfer.delivered = started, self._kernel.now
        self._log(transfer)

    def _connect(self, sender: str, receiver: str) -> Link:
        source, target = self._nodes[sender], self._nodes[receiver]
        local = source.nic is target.nic and source is not target
        paths = self._paths
        if paths is None or local:
            link = Link(source, target, 0, math.inf, local, at_once=True)
        else:
            latency, limit = paths.latency(sender, receiver), paths.limit(sender, receiver)
            link = Link(source, target, latency, limit, local, at_once=False)
        source.links[receiver] = link
        return link

    def _hand_over(self, transfer: Transfer) -> None:
        """What takes no time at all."""
        if not transfer.link.local:
            self.bytes_sent += transfer.size_bytes
        transfer.started = self._kernel.now
        self._put(transfer)

    def _start(self, transfer: Transfer) -> None:
        """Occupy both ends, which are free, for its duration; it arrives its latency later."""
        link, now = transfer.link, self._kernel.now
        duration = transfer.duration
        if duration:
            sender, receiver = link.source, link.target
            sender.sending_until = receiver.receiving_until = now + duration
            if receiver.waiting and not receiver.receive_wake:
                self._wake_receiver_later(receiver)
            if sender.outbox and not sender.send_wake:
                self._wake_sender_later(sender)
        arrival = now + duration + link.latency
        if link.last is not None and link.arrival == arrival:
            link.last.after = link.last = transfer
        elif arrival > now:
            link.last, link.arrival = transfer, arrival
            self._kernel.call_at(arrival, self._land, transfer)
        else:
            self._deliver(transfer)

    def _wake_sender_later(self, sender: Nic) -> None:
        sender.send_wake = True
        # Late: receivers that become free at the same time tell those who asked them first.
        self._kernel.call_at(sender.sending_until, self._wake_sender, sender, late=True)

    def _wake_receiver_later(self, receiver: Nic) -> None:
        receiver.receive_wake = True
        self._kernel.call_at(receiver.receiving_until, self._wake_receiver, receiver)

    def _wake_sender(self, sender: Nic) -> None:
        sender.send_wake = False
        self._send_next(sender)

    def _wake_receiver(self, receiver: Nic) -> None:
        """Tell who asked first and is not sending, until somebody sends to it."""
        receiver.receive_wake = False
        now = self._kernel.now
        while receiver.waiting and receiver.receiving_until <= now:
            link = receiver.waiting.popleft()
            link.asked = False
            sender = link.source
            if sender.sending_until <= now and not sender.send_wake:
                self._send_next(sender)

    def _send_next(self, sender: Nic) -> None:
        """The sender is free: start what can go, until it is busy.

        The busy receivers it passes over are asked to tell.
        """
        now, outbox = self._kernel.now, sender.outbox
        while sender.sending_until <= now:
            for place, transfer in enumerate(outbox):
                link = transfer.link
                if link.asked:
                    continue
                receiver = link.target
                if receiver.receiving_until <= now and not receiver.receive_wake:
                    del outbox[place]
                    transfer.started = now
                    self._start(transfer)
                    break
                self._ask(link)
            else:
                return

    def _ask(self, link: Link) -> None:
        link.asked = True
        receiver = link.target
        receiver.waiting.append(link)
        if not receiver.receive_wake:
            self._wake_receiver_later(receiver)

    def _land(self, first: Transfer) -> None:
        each: Transfer | None = first
        while each is not None:
            self._deliver(each)
            last, each = each, each.after
        link = first.link
        if link.last is last:
            link.last = None

    def _deliver(self, transfer: Transfer) -> None:
        """It has come through the network."""
        if self._plain:
            transfer.link.put(transfer.message)
        elif self._delays is not None:
            self._delays(transfer)
        else:
            self._put(transfer)

    def _put(self, transfer: Transfer) -> None:
        transfer.link.put(transfer.message)
        if self._log is not None:
            transfer.delivered = self._kernel.now
            self._log(transfer)
