"""A listener for many peers, over ZeroMQ.

A peer's routing identity is its name and a random tail. The sender of the first valid message under
the name of a peer becomes that peer, on that connection only. Messages of other senders are refused
one by one and have no effect. The gate refuses connections whose key is unknown, and the listener
refuses messages whose name is not the name of their key.

The number of connections that have sent no message of the run yet is limited, because each may send
4 MiB before ZeroMQ detects that it does not belong to the run.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import zmq

from outpace.errors import ConfigError
from outpace.real.memory.lane import Lane, MemoryMessage
from outpace.real.memory.slots import new_slots
from outpace.real.net.messages import Refused
from outpace.real.net.transport import FIRST, Handlers
from outpace.real.net.wire import Incoming, OldGeneration, Outgoing, WireError
from outpace.real.zeromq.socket import NAME_END, MonitoredSocket
from outpace.sync.messages import WireMessage

if TYPE_CHECKING:
    from outpace.real.zeromq.transport import ZeroMQTransport

_CLOSED: Final = -1
_SLOTS_MORE: Final = 3  # number of slots in addition to the peers, for slots that all peers read
_MOST_SLOTS: Final = 64
# number of connections, in addition to one for each peer that is yet to connect
_STRANGERS: Final = 32


class _NameTaken(WireError):
    """Raised if another connection has this name already."""


@dataclass(slots=True, eq=False)
class _Peer:
    name: str
    identity: bytes
    connection: int  # file descriptor; _CLOSED: none
    incoming: Incoming
    outgoing: Outgoing
    lane: Lane
    refused: bool = False
    first_ns: int = 0  # when the first piece of a message in several pieces was read


class Newcomers:
    """Limits the number of connections that have sent no message of the run yet.

    ZeroMQ accepts every connection, and gives it seconds for a handshake. A connection is its file
    descriptor, which ZeroMQ owns; so it is shut down here, and ZeroMQ closes it.

    Args:
        port: port at which the connections are accepted.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, connection: int) -> bool:
        return connection in self._connections

    def add(self, connection: int) -> None:
        self._connections[connection] = None

    def remove(self, connection: int) -> None:
        """Note that a connection has ended, or belongs to a peer."""
        self._connections.pop(connection, None)

    def limit(self, most: int) -> None:
        """Shut down connections until `most` are left.

        They are chosen at random. If the oldest were shut down, an attacker that connects often
        enough could prevent every handshake of a peer; if the newest were shut down, an attacker
        that keeps its connections open could do so.
        """
        if len(self) <= most:
            return
        for connection in random.sample(list(self._connections), len(self) - most):
            self.remove(connection)
            with contextlib.suppress(OSError):  # it has ended
                self._shut_down(connection)

    def _shut_down(self, connection: int) -> None:
        with socket.socket(fileno=os.dup(connection)) as each:
            # If the connection has just ended, the number may belong to another file by now.
            if each.getsockname()[1:2] == (self._port,):
                each.shutdown(socket.SHUT_RDWR)


class ZeroMQListener(MonitoredSocket):
    """A `transport.Listener`."""

    def __init__(
        self, transport: ZeroMQTransport, handlers: Handlers, address: str, names: Collection[str]
    ) -> None:
        super().__init__(transport, zmq.ROUTER, handlers)
        session, self._names = self._session, set(names)
        self.when_refused: list[Callable[[str], None]] = []
        self._peers: dict[bytes, _Peer] = {}  # peers by identity
        self._named: dict[str, _Peer] = {}
        self._generations: dict[str, int] = {}  # identities of peers that were replaced
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.curve_server = True
        self._socket.curve_secretkey = session.keys.secret.encode()
        self._socket.curve_publickey = session.keys.public.encode()
        self._socket.zap_domain = b"outpace"
        # without the gate there is no connection
        self._socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        try:
            self._socket.bind(f"tcp://{address}:*")
        except zmq.ZMQError as error:
            self.close(linger_s=0)
            raise ConfigError(f"cannot listen at {address}: {error}") from None
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._newcomers = Newcomers(int(self.endpoint.rpartition(":")[2]))
        # connections that have shown a key of the run but have sent no message yet
        self._let_in = 0
        # Peers whose connections have ended, and whose last messages may be unread.
        self._lost: list[_Peer] = []
        self._ended = set[int]()  # connections that ended, and whose messages may be unread

    @property
    def peers(self) -> list[str]:
        return [
            peer.name
            for peer in self._peers.values()
            if peer.connection != _CLOSED and not peer.refused
        ]

    @property
    def unread(self) -> bool:
        return self._socket.poll(0) != 0

    def send(self, name: str, message: WireMessage) -> None:
        peer = self._named.get(name)
        if peer is not None and not peer.refused:
            try:
                self._send(peer.outgoing, peer.identity, message, peer.lane)
            except zmq.ZMQError as error:  # lost connections that the monitor has not reported yet
                if error.errno != zmq.EHOSTUNREACH:
                    raise

    def refuse(self, name: str, reason: str) -> None:
        peer = self._named.get(name)
        if peer is not None and not peer.refused:
            line = f"refused a message of {name!r}, and all further ones: {reason}"
            self._log.note(line, always=True)
            self.send(name, Refused(reason))
            peer.refused = True
            peer.lane.close()
            for call in self.when_refused:
                call(name)
            if peer.connection != _CLOSED:
                self._handlers.on_lost(name)

    def share_memory(self, nbytes: int) -> None:
        if self._session.shares_memory and self._slots is None:
            count = min(len(self._names) + _SLOTS_MORE, _MOST_SLOTS)
            self._slots = new_slots(count, nbytes, self._log.note, is_read=True)
            for peer in self._peers.values():
                peer.lane.offer(self._slots)

    def replace(self, name: str, generation: int) -> None:
        known = self._generations.get(name, FIRST)
        if generation <= known:
            raise ValueError(f"{name} has generation {known}: {generation} cannot follow")
        self._generations[name] = generation
        peer = self._named.pop(name, None)
        if peer is not None:
            if not peer.refused and peer.connection != _CLOSED:
                self._tell(peer.outgoing, peer.identity, Refused.replaced(generation))
            peer.refused = True
            peer.lane.close()
            self._drop_if_over(peer)

    def _take(self, frames: list[zmq.Frame]) -> bool:
        identity = bytes(frames[0].buffer)
        known = self._peers.get(identity)
        name = _name_in(identity) if known is None else known.name
        peer: _Peer | None = None
        is_gone = False
        try:
            if (owner := frames[-1].get("User-Id")) != name:
                raise WireError(f"its key belongs to {owner}")
            peer = known
            if peer is None:
                self._first_message(int(frames[-1].get(zmq.SRCFD)))
                newcomer = self._newcomer(name, identity, frames[-1])
                message = newcomer.incoming.take(frames[1:])
                if name in self._named:
                    raise _NameTaken("it has been here already, over another connection")
                peer = self._peers[identity] = self._named[name] = newcomer
                newcomer.lane.offer(self._slots)
                if is_gone := peer.connection in self._ended:
                    self._ended.remove(peer.connection)
                    self._end(peer)
            elif peer.refused:
                return False
            else:
                message = peer.incoming.take(frames[1:])
        except WireError as error:
            if isinstance(error, OldGeneration) and peer is None:
                self._log.note(f"told an earlier process of {name!r} that another has its place")
                self._tell(self._outgoing(), identity, Refused.replaced(self._generations[name]))
            elif peer is None:
                self._log.note(f"refused a message of {name[:64]!r}: {error}")
                if isinstance(error, _NameTaken):
                    self._tell(self._outgoing(), identity, Refused(str(error)))
            else:
                self.refuse(name, str(error))
            return False
        clock = self._clock
        if message is None:
            peer.first_ns = peer.first_ns or clock.read_ns
        else:
            clock.first_ns, peer.first_ns = peer.first_ns or clock.read_ns, 0
            if isinstance(message, MemoryMessage):
                try:
                    peer.lane.take(message)
                except WireError as error:
                    self.refuse(name, str(error))
                message = None
            else:
                self._handlers.on_message(name, message)
        if is_gone:
            self._handlers.on_lost(name)
        return message is not None

    def _newcomer(self, name: str, identity: bytes, frame: zmq.Frame) -> _Peer:
        """Return the new peer if its first message is a message of this run."""
        if name not in self._names:
            raise WireError("no process of this run has that name")
        connection = int(frame.get(zmq.SRCFD))
        run, generation = self._session.run, self._generations.get(name, FIRST)
        expect = partial(self._handlers.expect, name)
        outgoing = self._outgoing()
        tell = partial(self._tell, outgoing, identity)
        lane = Lane(tell, self._clock.later, self._log.note)
        incoming = Incoming(run, generation, expect, self._handlers.is_finite, lane.block)
        return _Peer(name, identity, connection, incoming, outgoing, lane)

    def _first_message(self, connection: int) -> None:
        self._take_events()  # an unread event may be of an earlier connection's end
        if connection in self._newcomers:
            self._let_in = max(0, self._let_in - 1)
            self._forget_newcomer(connection)

    def _forget_newcomer(self, connection: int) -> None:
        self._newcomers.remove(connection)
        # one of these connections may have ended
        self._let_in = min(self._let_in, len(self._newcomers))

    def _outgoing(self) -> Outgoing:
        return Outgoing(self._session.run, self._session.generation)

    def _tell(self, outgoing: Outgoing, identity: bytes, message: WireMessage) -> None:
        """Send a message to a sender that has this run's keys, even if its name is taken."""
        with contextlib.suppress(zmq.ZMQError):  # it is gone
            self._send(outgoing, identity, message)

    def _events_came(self) -> None:
        super()._events_came()
        # ZeroMQ does not say which connection has shown a key. While such a connection has sent no
        # message, no connection is shut down: a peer whose first message is lost could not take
        # part any more.
        if not self._let_in and not self.unread:
            self._newcomers.limit(len(self._names) - len(self._named) + _STRANGERS)
        self._note_read()

    def _receive(self) -> None:
        super()._receive()
        if self._ended or self._lost:
            self._note_read()

    def _note_read(self) -> None:
        """Once all messages are read, forget the data of connections that have ended.

        Ended connections that have sent no message are logged.
        """
        if (self._ended or self._lost) and not self._socket.closed and not self.unread:
            for _ in self._ended:
                self._log.note("a connection ended that had brought no message of this run")
            self._ended.clear()
            lost, self._lost = self._lost, []
            for peer in lost:
                peer.lane.close()
                self._drop_if_over(peer)

    def _drop_if_over(self, peer: _Peer) -> None:
        """Forget a peer that has lost its name, once no more messages of it can arrive."""
        is_over = peer.connection == _CLOSED and peer not in self._lost
        if is_over and self._named.get(peer.name) is not peer:
            del self._peers[peer.identity]

    def _accepted(self, connection: int) -> None:
        self._ended.discard(connection)  # the number is used again
        self._newcomers.add(connection)

    def _handshake_succeeded(self) -> None:
        self._let_in += 1

    def close(self, linger_s: float = 1.0) -> None:
        for peer in self._peers.values():
            peer.lane.close()
        super().close(linger_s)

    def _disconnected(self, connection: int) -> None:
        self._forget_newcomer(connection)
        for peer in self._peers.values():
            if peer.connection == connection:
                self._end(peer)
                if not peer.refused:
                    self._handlers.on_lost(peer.name)
                return
        self._ended.add(connection)

    def _end(self, peer: _Peer) -> None:
        """Note that the connection of a peer has ended. Earlier messages are still read."""
        peer.connection = _CLOSED
        peer.lane.close(hears=True)
        self._lost.append(peer)

    def _handshake_failed(self, *, unclear: bool) -> None:
        self._log.note("refused a connection that does not use the protocol of this run")


def _name_in(identity: bytes) -> str:
    """Return the name in a routing identity."""
    return identity.decode("utf-8", "replace").partition(NAME_END)[0]
