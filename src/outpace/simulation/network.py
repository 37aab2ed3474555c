"""The network in virtual time, `serialised` contention (Zhang et al., section 3.2).

Nodes compute, send and receive independently. A node sends one message at a time and
receives one at a time; a transfer occupies both ends for bytes / bandwidth. Latency
comes after it and occupies nobody. A sender that is free looks through its queue from
the front, takes the first message whose receiver is free, and asks the busy ones it
passed over to be told; a receiver that becomes free tells the first who asked and is
not sending. So waking costs O(1), and messages of one sender to one receiver stay in
order as long as their latencies are equal. A message without tensors takes its turn
like any other, and no time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from outpace.cluster import NetworkLaw
from outpace.kernel import Kernel, Mailbox
from outpace.units import SECOND, Time, nanoseconds


class Transfer:
    """One message on its way. Times in ns; -1: not yet."""

    __slots__ = (
        "delivered", "message", "receiver", "requested", "sender", "size_bytes", "started",
    )  # fmt: skip

    def __init__(
        self, sender: Node, receiver: Node, message: object, size_bytes: int, requested: Time
    ) -> None:
        self.sender, self.receiver = sender, receiver
        self.message, self.size_bytes = message, size_bytes
        self.requested: Time = requested
        self.started: Time = -1
        self.delivered: Time = -1


class Node:
    """A computer: its mailbox and the state of its connection. Made by `Network.add`."""

    __slots__ = (
        "asked", "bandwidth", "flying", "latency", "mailbox", "name", "outbox", "receiving",
        "sending", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, mailbox: Mailbox[Any], latency: Time, bandwidth: float) -> None:
        self.name, self.mailbox = name, mailbox
        self.latency, self.bandwidth = latency, bandwidth
        self.sending = self.receiving = False
        self.outbox: deque[Transfer] = deque()
        self.asked: set[Node] = set()  # busy receivers that will tell this node
        self.waiting: deque[Node] = deque()  # senders that this node will tell
        self.flying: dict[Node, deque[Transfer]] = {}  # by receiver: sent, not delivered


Log: TypeAlias = Callable[[Transfer], None]


class Network:
    """Carries messages between nodes. Without a law it takes no time at all."""

    def __init__(self, kernel: Kernel, law: NetworkLaw | None = None, log: Log | None = None):
        self.messages = 0
        self.bytes_sent = 0
        self._kernel, self._law, self._log = kernel, law, log
        self._nodes: dict[str, Node] = {}

    def add(self, name: str) -> Mailbox[Any]:
        """A node of this name; what is sent to it arrives in the mailbox.

        Raises ValueError if there is one of that name.
        """
        if name in self._nodes:
            raise ValueError(f"there already is a node {name!r}")
        latency_s, bandwidth = (0.0, math.inf) if self._law is None else self._law.of(name)
        mailbox = Mailbox[Any](self._kernel, f"the mailbox of {name}")
        self._nodes[name] = Node(name, mailbox, nanoseconds(latency_s), bandwidth)
        return mailbox

    def send(self, sender: str, receiver: str, message: object, size_bytes: int) -> None:
        """Queue a message. Raises KeyError for an unknown node."""
        self.messages += 1
        self.bytes_sent += size_bytes
        source, target = self._nodes[sender], self._nodes[receiver]
        transfer = Transfer(source, target, message, size_bytes, self._kernel.now)
        if self._law is None:
            transfer.started = self._kernel.now
            self._deliver(transfer)
        elif source.sending or target.receiving or target in source.asked:
            source.outbox.append(transfer)
            if not source.sending:
                self._ask(source, target)
        else:
            self._start(transfer)

    def _start(self, transfer: Transfer) -> None:
        """Both ends are free: begin. They are busy afterwards if it takes any time."""
        sender, receiver, now = transfer.sender, transfer.receiver, self._kernel.now
        transfer.started = now
        duration = 0
        if transfer.size_bytes:
            bandwidth = min(sender.bandwidth, receiver.bandwidth)
            duration = math.floor(transfer.size_bytes / bandwidth * SECOND + 0.5)
        if duration:
            sender.sending = receiver.receiving = True
            self._kernel.call_at(now + duration, self._finish, transfer)
        else:
            self._arrive(transfer)

    def _finish(self, transfer: Transfer) -> None:
        sender, receiver = transfer.sender, transfer.receiver
        sender.sending = receiver.receiving = False
        self._arrive(transfer)
        while receiver.waiting and not receiver.receiving:
            asker = receiver.waiting.popleft()
            asker.asked.discard(receiver)
            if not asker.sending:  # else it looks again when it has finished
                self._send_next(asker)
        if not sender.sending:
            self._send_next(sender)

    def _send_next(self, sender: Node) -> None:
        """The sender is free: start what can go, until it is busy."""
        while not sender.sending:
            place = self._first_that_can_go(sender)
            if place is None:
                return
            transfer = sender.outbox[place]
            del sender.outbox[place]
            self._start(transfer)

    def _first_that_can_go(self, sender: Node) -> int | None:
        """Its place in the queue. The busy receivers before it are asked to tell."""
        asked = sender.asked
        for place, transfer in enumerate(sender.outbox):
            receiver = transfer.receiver
            if receiver in asked:
                continue
            if not receiver.receiving:
                return place
            self._ask(sender, receiver)
        return None

    def _ask(self, sender: Node, receiver: Node) -> None:
        if receiver not in sender.asked:
            sender.asked.add(receiver)
            receiver.waiting.append(sender)

    def _arrive(self, transfer: Transfer) -> None:
        latency = max(transfer.sender.latency, transfer.receiver.latency)
        if latency:
            # By pair: two that arrive at the same time stay in order, also if ties are shuffled.
            flying = transfer.sender.flying.setdefault(transfer.receiver, deque())
            flying.append(transfer)
            self._kernel.call_at(self._kernel.now + latency, self._land, flying)
        else:
            self._deliver(transfer)

    def _land(self, flying: deque[Transfer]) -> None:
        self._deliver(flying.popleft())

    def _deliver(self, transfer: Transfer) -> None:
        transfer.receiver.mailbox.put(transfer.message)
        if self._log is not None:
            transfer.delivered = self._kernel.now
            self._log(transfer)
