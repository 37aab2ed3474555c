"""The parts of a simulated network of either contention: nodes, links, transfers, log."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from outpace.kernel import Mailbox
from outpace.support.units import SECOND, Time


class Message(Protocol):
    """A message as the network sees it; messages of strategies have this form."""

    @property
    def nbytes(self) -> int:
        """The bytes that the message takes on the network."""

    @property
    def is_counted(self) -> bool:
        """True if the message counts as a message of the run."""

    @property
    def may_have_bytes(self) -> bool:
        """False if no message of this kind has bytes."""


class Parcel(msgspec.Struct):
    """A message with any content, and the number of bytes that it counts for."""

    is_counted: ClassVar[bool] = True
    may_have_bytes: ClassVar[bool] = True

    content: Any
    nbytes: int


class Transfer(msgspec.Struct, eq=False):
    """A message that is being sent, with its times in nanoseconds."""

    link: NodePath
    message: Message
    size_bytes: int
    requested: Time
    # Time for which it occupies both ends, in a serialised network; None: it follows from the size.
    duration: Time | None = None
    number: int = 0  # in the order of the calls of `send`
    started: Time = -1
    delivered: Time = -1
    # The next transfer that leaves together with it or, after leaving, arrives together with it
    # over the same link.
    after: Transfer | None = None

    @property
    def sender(self) -> Node:
        return self.link.sender

    @property
    def receiver(self) -> Node:
        return self.link.receiver


Log: TypeAlias = Callable[[Transfer], None]

_NAMES = [(name, pa.string()) for name in ("sender", "receiver", "kind")]
_NUMBERS = ("size_bytes", "requested_ns", "started_ns", "delivered_ns")
_SCHEMA = pa.schema(_NAMES + [(name, pa.int64()) for name in _NUMBERS])


class MessageLog:
    """Records each delivered message as a row, so its memory grows with the run."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def __call__(self, transfer: Transfer) -> None:
        self._rows.append(
            (
                transfer.sender.name,
                transfer.receiver.name,
                type(transfer.message).__name__.lower(),
                transfer.size_bytes,
                transfer.requested,
                transfer.started,
                transfer.delivered,
            )
        )

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(
            [dict(zip(_SCHEMA.names, row, strict=True)) for row in self._rows], _SCHEMA
        )


@dataclass(slots=True, eq=False)
class Nic:
    """The network interface of a machine, used by all its nodes; or its loopback interface."""

    bandwidth: float  # bytes/s, in each direction
    sending_until: Time = 0
    receiving_until: Time = 0
    send_wake: bool = False  # an event is due when it becomes free to send
    receive_wake: bool = False
    # Serialised contention: messages to send, in order, without parked ones.
    outbox: deque[Transfer] = field(default_factory=deque)
    queued: int = 0  # number of messages to send, including parked ones
    waiting: deque[NodePath] = field(default_factory=deque)  # links to resume when free to receive


@dataclass(slots=True, eq=False)
class Node:
    """A sender and receiver of messages."""

    name: str
    mailbox: Mailbox[Any]
    nic: Nic
    # links on which the node sends, by receiver
    links: dict[str, NodePath] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NodePath:
    """The path from a sender to a receiver."""

    sender: Node
    receiver: Node
    latency: Time
    limit: float  # bytes/s of this path alone, in addition to the bandwidths of its two ends
    local: bool  # both nodes are on one machine
    loopback: Nic | None = None  # interface that it uses instead of the interfaces of its ends
    source: Nic = field(init=False)
    target: Nic = field(init=False)
    put: Callable[[Any], None] = field(init=False)
    bandwidth: float = field(init=False)
    asked: bool = False  # the link is in the receiver's `waiting`
    parked: list[Transfer] = field(default_factory=list)  # messages that wait for the receiver; few
    # serialised: the last transfer that takes a turn, until it leaves
    unsent: Transfer | None = None
    is_cut: bool = False  # True: the process at one end has ended, so no message arrives any more
    last: Transfer | None = None  # the last transfer sent, until it has arrived
    arrival: Time = 0  # when `last` arrives
    size: int = 0  # size of the last transfer that had bytes
    duration: Time = 0  # duration of that transfer

    def __post_init__(self) -> None:
        self.source = self.loopback or self.sender.nic
        self.target = self.loopback or self.receiver.nic
        self.put = self.receiver.mailbox.put
        self.bandwidth = min(self.source.bandwidth, self.target.bandwidth, self.limit)

    def duration_of(self, size_bytes: int) -> Time:
        """Return how long this number of bytes occupies both ends, in nanoseconds."""
        self.size = size_bytes
        self.duration = math.floor(size_bytes / self.bandwidth * SECOND + 0.5)
        return self.duration
