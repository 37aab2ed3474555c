"""Transports carry wire messages and their blocks between the processes of a run.

A process opens one transport. The coordinator and the servers listen with it, all other processes
call them. Every transport keeps these promises (tests/contracts/test_transports.py):

- Callbacks are called in the thread of the clock, while it waits for the next event.
- The messages of a connection arrive whole and in the order in which they were sent, and once.
- Messages of a peer are accepted only under its own name, and only from the owner of that name's
  key.
- A message that cannot be decoded, or whose block is not the expected one, is refused: the peer is
  told so, and its later messages are ignored; other peers are not affected.
- A peer that was replaced by another process is told so, and its later messages are ignored.
- A connection that ends, or is silent for the lease of the session, is reported as lost.
- `send` never waits for the peer. The sender must not change a block that it has sent.

An endpoint is a string that only the transport interprets, and each listener has its own. Nothing
is exchanged through files or environment variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import zmq

from outpace.real.net.block_frames import IsFinite
from outpace.sync.messages import WireMessage

FIRST: Final = 0  # generation of the processes that begin a run


@dataclass(frozen=True, slots=True)
class Keys:
    """A CURVE key pair, in Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"Keys({self.public})"  # never shows the secret key


def new_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


@dataclass(frozen=True, slots=True)
class Session:
    """The run to which a process belongs, and the keys of that process.

    generation: FIRST, or higher for a process that has replaced another one with the same name.
    lease_s: seconds of silence after which a connection counts as lost. shares_memory: True if
    large blocks are sent in memory that processes of one machine share.
    """

    run: int
    generation: int
    lease_s: float
    keys: Keys
    shares_memory: bool = False


@dataclass(frozen=True, slots=True)
class Handlers:
    """Callbacks for the messages and losses of a connection. Peers are identified by name.

    expect: returns (dtype, elements) of the block that may come with a message of a peer; None: no
    block. The message has the head of the block (`blocks.packing.BlockHead`) in its place. on_lost:
    called when a known peer has ended, or was refused. is_finite: tests large blocks piece by
    piece, while a piece is in the cache.
    """

    expect: Callable[[str, WireMessage], tuple[str, int] | None]
    on_message: Callable[[str, WireMessage], None]
    on_lost: Callable[[str], None]
    is_finite: IsFinite | None = None


class Listener(Protocol):
    """Exchanges messages with the peers that call this process."""

    endpoint: str  # the endpoint at which peers reach it
    when_refused: list[Callable[[str], None]]  # called with the name of each peer that is refused

    @property
    def peers(self) -> list[str]:
        """The peers that have sent an acceptable message and are still connected."""

    @property
    def unread(self) -> bool:
        """True if a message has arrived that was not passed on yet."""

    def send(self, name: str, message: WireMessage) -> None:
        """Send to a peer that has called before; no effect if the peer has ended."""

    def refuse(self, name: str, reason: str) -> None:
        """Tell the peer and the log why no more messages of this peer are accepted."""

    def share_memory(self, nbytes: int) -> None:
        """Send blocks of up to this size in memory that peers on this machine read.

        Only the first call has an effect, and only if the session shares memory.
        """

    def replace(self, name: str, generation: int) -> None:
        """Assign the name of a peer to a new process; from now on only that process is accepted.

        The present owner of the name, and every process of an old generation that connects, is
        informed (`Refused.replaced`). `on_lost` is not called.

        Raises:
            ValueError: if the generation is not above the peer's.
        """

    def close(self, linger_s: float = 1.0) -> None:
        """Close; messages sent before are still delivered, for up to `linger_s` seconds."""


class Caller(Protocol):
    """Exchanges messages with one listener."""

    peer: str  # name of the process that listens

    @property
    def up(self) -> bool:
        """True while there is a connection."""

    def send(self, message: WireMessage) -> None:
        """Send; queued until there is a connection. Afterwards the block belongs to the peer.

        Raises:
            WireError: if the listener refused the connection.
        """

    def share_memory(self, nbytes: int) -> None:
        """Send blocks of up to this size in memory that a listener on this machine shares.

        Only the first call has an effect, and only if the session shares memory.
        """

    def close(self, linger_s: float = 1.0) -> None:
        """Close; messages sent before are still delivered, for up to `linger_s` seconds."""


class Transport(Protocol):
    """The connections of one process, which has a name in its run."""

    def listen(self, address: str, peers: Mapping[str, str], handlers: Handlers) -> Listener:
        """Listen for the named peers.

        Args:
            address: an address of this machine. The transport chooses the port.
            peers: public key of each peer that may call.

        Raises:
            ConfigError: if it is not an address of this machine, or if all its ports are taken.
        """

    def call(self, peer: str, endpoint: str, key: str, handlers: Handlers) -> Caller:
        """Connect to a listener.

        Args:
            peer: name of the process that listens.
            endpoint: endpoint of the peer's listener.
            key: public key of the peer.
        """

    def close(self) -> None:
        """Close all connections after their messages were delivered or their peers were lost."""
