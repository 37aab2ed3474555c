"""What a simulated network consists of, whatever its contention: nodes, links, transfers."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from outpace.kernel import Mailbox
from outpace.support.units import SECOND, Time


class Transfer:
    """One message on its way; its times in ns, set as they come."""

    __slots__ = (
        "after",
        "delivered",
        "duration",
        "link",
        "message",
        "requested",
        "size_bytes",
        "started",
    )

    def __init__(
        self, link: Link, message: object, size_bytes: int, duration: Time, requested: Time
    ) -> None:
        self.link, self.message, self.size_bytes = link, message, size_bytes
        self.duration: Time = duration  # for which it occupies both ends
        self.requested: Time = requested
        self.after: Transfer | None = None  # on the same link, arrives at the same time
        self.started: Time
        self.delivered: Time

    @property
    def sender(self) -> Node:
        return self.link.sender

    @property
    def receiver(self) -> Node:
        return self.link.receiver


class Nic:
    """A machine's connection, of its one node or of two that share it."""

    __slots__ = (
        "bandwidth",
        "outbox",
        "receive_wake",
        "receiving_until",
        "send_wake",
        "sending_until",
        "waiting",
    )

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth  # bytes/s, in each direction
        self.sending_until: Time = 0
        self.receiving_until: Time = 0
        self.send_wake = self.receive_wake = False
        self.outbox: deque[Transfer] = deque()
        self.waiting: deque[Link] = deque()  # from the senders that this one will tell


class Node:
    """Who sends and receives: its mailbox, and the connection of its machine."""

    __slots__ = ("links", "mailbox", "name", "nic")

    def __init__(self, name: str, mailbox: Mailbox[Any], nic: Nic) -> None:
        self.name, self.mailbox, self.nic = name, mailbox, nic
        self.links: dict[str, Link] = {}  # to the receivers it has sent to, by name


class Link:
    """What there is between a sender and a receiver.

    `limit` (bytes/s) is that of the two alone. local: both are on one machine.
    """

    __slots__ = (
        "arrival",
        "asked",
        "at_once",
        "bandwidth",
        "duration",
        "last",
        "latency",
        "limit",
        "local",
        "put",
        "receiver",
        "sender",
        "size",
        "source",
        "target",
    )

    def __init__(
        self, sender: Node, receiver: Node, latency: Time, limit: float, local: bool, at_once: bool
    ) -> None:
        self.sender, self.receiver, self.put = sender, receiver, receiver.mailbox.put
        self.source, self.target = sender.nic, receiver.nic
        self.latency, self.limit = latency, limit
        self.bandwidth = min(self.source.bandwidth, self.target.bandwidth, limit)
        self.local, self.at_once = local, at_once
        self.asked = False  # will the receiver tell the sender when it is free?
        self.last: Transfer | None = None  # the last one sent, if not arrived
        self.arrival: Time = 0  # when that will be
        self.size, self.duration = 0, 0  # of the last transfer that had bytes

    def duration_of(self, size_bytes: int) -> Time:
        """How long so many bytes occupy both ends."""
        self.size = size_bytes
        self.duration = math.floor(size_bytes / self.bandwidth * SECOND + 0.5)
        return self.duration
