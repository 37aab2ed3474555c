"""Transports: what carries wire messages and their blocks between the processes of a run.

A process opens one transport. The coordinator and the servers listen with it, all other processes
call them. Every transport keeps these promises (tests/contracts/test_transports.py):

- Callbacks are called in the thread of the clock, while it waits for the next event.
- The messages of a connection arrive whole and in the order in which they were sent, and once.
- A peer is heard under its own name only, and is the owner of that name's key.
- A message that cannot be decoded, or whose block is not the expected one, is refused: the peer is
  told so and never heard again, and the other peers are not disturbed.
- A peer whose place another process has taken is told so and not heard any more.
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
        return f"Keys({self.public})"  # never the secret


def new_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


@dataclass(frozen=True, slots=True)
class Session:
    """The run that a process belongs to, and the keys of that process.

    generation: FIRST, or higher in a process that has taken the place of another one of the same
    name. lease_s: seconds of silence after which a
    connection counts as lost. shares_memory: True if large blocks go through
    memory that processes of one machine share.
    """

    run: int
    generation: int
    lease_s: float
    keys: Keys
    shares_memory: bool = False


@dataclass(frozen=True, slots=True)
class Handlers:
    """Callbacks for the messages and losses of a connection. Peers are called by name.

    expect: returns which block may come with a message of a peer, as (dtype, elements); None: none.
        The message has the head of the block (`blocks.packing.BlockHead`) in place of it.
    on_lost: called when a peer that was heard is gone, or was refused. is_finite: tests large
    blocks piece by piece, while a piece is in the cache.
    """

    expect: Callable[[str, WireMessage], tuple[str, int] | None]
    on_message: Callable[[str, WireMessage], None]
    on_lost: Callable[[str], None]
    is_finite: IsFinite | None = None


class Listener(Protocol):
    """Talks with the peers that call this process."""

    endpoint: str  # where peers reach it
    when_refused: list[Callable[[str], None]]  # called with the name of each peer that is refused

    @property
    def peers(self) -> list[str]:
        """The peers that have sent an acceptable message and are still connected."""

    @property
    def unread(self) -> bool:
        """True if a message has arrived that was not handed over yet."""

    def send(self, name: str, message: WireMessage) -> None:
        """Send to a peer that has called before; no effect if it is gone."""

    def refuse(self, name: str, reason: str) -> None:
        """Tell the peer and the log why nothing more is accepted from this peer."""

    def share_memory(self, nbytes: int) -> None:
        """Send blocks of up to so many bytes in memory that peers on this machine read.

        It has an effect once, and none unless the session shares memory.
        """

    def replace(self, name: str, generation: int) -> None:
        """Give the name of a peer to a new process, and hear only that one from now on.

        The process that has it is told (`Refused.replaced`), and so is every other one of an old
        generation that connects. `on_lost` is not called.

        Raises:
            ValueError: the generation is not above that of the peer.
        """

    def close(self, linger_s: float = 1.0) -> None:
        """Close; messages sent before are still delivered, for up to `linger_s` seconds."""


class Caller(Protocol):
    """Talks with one listener."""

    peer: str  # name of the process that listens

    @property
    def up(self) -> bool:
        """True while there is a connection."""

    def send(self, message: WireMessage) -> None:
        """Send; queued until there is a connection. The block belongs to the peer from then on.

        Raises:
            WireError: the listener refused the connection.
        """

    def share_memory(self, nbytes: int) -> None:
        """Send blocks of up to so many bytes in memory that a listener on this machine shares.

        It has an effect once, and none unless the session shares memory.
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
            ConfigError: it is not an address of this machine, or all its ports are taken.
        """

    def call(self, peer: str, endpoint: str, key: str, handlers: Handlers) -> Caller:
        """Connect to a listener.

        Args:
            peer: name of the process that listens.
            endpoint: of its listener.
            key: its public key.
        """

    def close(self) -> None:
        """Close what is still open; wait until what was sent is delivered, or its peer is lost."""
