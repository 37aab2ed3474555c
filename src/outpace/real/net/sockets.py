"""ZeroMQ sockets that speak `wire`: a Listener for many peers, a Caller for one.

Peers are called by name (worker-3). Their ZeroMQ routing identity is that and a random
tail: ZeroMQ listens to the first of two with the same identity, so it must be one that
nobody else can take. With CURVE each process has a key pair, and the listener holds the
list of who may come: a connection whose key is not on it is refused, and so is a message
whose name is not that of its key.

Who sends a message of this run under the name of a member becomes that peer, over that
connection alone; what others send is refused message by message and changes nothing. A
peer that then sends something else is told so, named in the log and never listened to
again; everybody else goes on.

A connection that closes, or is silent for a lease (ZeroMQ's heartbeats, sent by its own
threads even while Python computes), is reported as lost.
"""

from __future__ import annotations

import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch
import zmq
from zmq.utils.monitor import parse_monitor_message

from outpace.blocks.block import Block
from outpace.errors import ConfigError
from outpace.real.net.clock import RealClock
from outpace.real.net.gate import Refusals, Session
from outpace.real.net.messages import Refused, WireMessage
from outpace.real.net.wire import (
    HEADER_BYTES,
    PIECE_BYTES,
    Expect,
    Frame,
    Incoming,
    Outgoing,
    WireError,
)

OnMessage: TypeAlias = Callable[[str, WireMessage, "Block | None"], None]
OnLost: TypeAlias = Callable[[str], None]

LOOPBACK: Final = "tcp://127.0.0.1"
_AT_ONCE: Final = 64  # messages taken in before the kernel gets its turn
_CLOSED: Final = -1
_ATTEMPTS: Final = 5  # handshakes that may end for no known reason before the caller gives up
_MORE: Final = zmq.SNDMORE | zmq.NOBLOCK
_NEWS_MS: Final = 1000  # for the news of what ended a connection
_GONE: Final = zmq.EVENT_DISCONNECTED
_FIT: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_UNCLEAR: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_UNFIT: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_LONGEST: Final = max(HEADER_BYTES, PIECE_BYTES) + 64  # bytes of a frame, and what CURVE adds
_TAIL: Final = "/"  # ends the name in an identity


class _Socket(ABC):
    """A socket with its monitor, watched by the clock."""

    def __init__(
        self, context: zmq.Context[Any], clock: RealClock, kind: int, session: Session
    ) -> None:
        self._clock, self._session = clock, session
        self._socket: zmq.Socket[bytes] = context.socket(kind)
        beat_ms = max(1, int(session.lease_s * 1000))
        for option, value in (
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.MAXMSGSIZE, _LONGEST),
            (zmq.HEARTBEAT_IVL, max(1, beat_ms // 5)),
            (zmq.HEARTBEAT_TIMEOUT, beat_ms),
            (zmq.HANDSHAKE_IVL, 10_000),
            (zmq.LINGER, 1000),
        ):
            self._socket.setsockopt(option, value)
        self._monitor = self._new_monitor(context)
        clock.watch(self._monitor, self._look)  # first: before the messages of who came after
        clock.watch(self._socket, self._receive)

    def _new_monitor(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        """As get_monitor_socket, but never full: ZeroMQ's thread waits for a full one, with
        all that it does, and so does who closes the socket then."""
        address = f"inproc://monitor-{secrets.token_hex(8)}"
        self._socket.monitor(address, _GONE | _FIT | _UNCLEAR | _UNFIT)
        monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        monitor.set_hwm(0)
        monitor.connect(address)
        return monitor

    def _look(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            if event["event"] == _GONE:
                self._gone(event["value"])
            elif event["event"] == _FIT:
                self._fit()
            else:
                self._unfit(unclear=event["event"] == _UNCLEAR)

    def _receive(self) -> None:
        """Up to the first whole message: the kernel acts on it before it looks for the next."""
        receive = self._socket.recv
        for _ in range(_AT_ONCE):
            try:
                frame = receive(zmq.NOBLOCK, False)
            except zmq.Again:
                return
            frames = [frame]
            while frame.more:
                frame = receive(0, False)
                frames.append(frame)
            if self._take(frames):
                return

    def _send(
        self, outgoing: Outgoing, peer: bytes | None, message: WireMessage, block: Block | None
    ) -> None:
        """Raises zmq.Again if there is no connection and ZeroMQ is not trying to get one."""
        send = self._socket.send
        for header, *piece in outgoing.frames(message, block):
            if peer is not None:
                send(peer, _MORE)
            send(header, _MORE if piece else zmq.NOBLOCK)
            if piece:  # small ones are cheaper to copy than to share
                send(piece[0], zmq.NOBLOCK, len(piece[0]) < zmq.COPY_THRESHOLD)

    @abstractmethod
    def _take(self, frames: list[zmq.Frame]) -> bool:
        """Was it, or did it complete, a message?"""

    @abstractmethod
    def _gone(self, connection: int) -> None:
        """This connection (a file descriptor) has ended."""

    def _fit(self) -> None:  # noqa: B027  # a listener need not know
        """A handshake succeeded."""

    @abstractmethod
    def _unfit(self, *, unclear: bool) -> None:
        """A handshake failed; `unclear`: for no reason that ZeroMQ knows."""

    def close(self, linger_s: float = 1.0) -> None:
        """What was sent is still delivered, in the background, for up to so long."""
        if self._socket.closed:
            return
        self._clock.forget(self._monitor)
        self._clock.forget(self._socket)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=int(linger_s * 1000))


class _Taken(WireError):
    """Somebody else came first under that name."""


class _Peer:
    __slots__ = ("connection", "identity", "incoming", "name", "outgoing", "refused")

    def __init__(
        self, name: str, identity: bytes, connection: int, incoming: Incoming, outgoing: Outgoing
    ) -> None:
        self.name, self.identity, self.connection = name, identity, connection
        self.refused = False
        self.incoming, self.outgoing = incoming, outgoing


class Listener(_Socket):
    """Accepts the named peers and talks with each.

    `expected(name)` says what blocks that peer may send.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        clock: RealClock,
        session: Session,
        refusals: Refusals,
        *,
        names: Mapping[str, object],
        expected: Callable[[str], Expect],
        on_message: OnMessage,
        on_lost: OnLost,
        address: str = LOOPBACK,
        is_finite: Callable[[torch.Tensor], bool] | None = None,
    ) -> None:
        """Listens at `address`; without a port there, at a free one. is_finite: as Incoming's.

        Raises ConfigError if it is taken.
        """
        super().__init__(context, clock, zmq.ROUTER, session)
        self._refusals, self._names, self._expected = refusals, names, expected
        self._on_message, self._on_lost = on_message, on_lost
        self._is_finite = is_finite
        self._peers: dict[bytes, _Peer] = {}  # by identity
        self._named: dict[str, _Peer] = {}
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if session.keys is not None:
            self._socket.curve_server = True
            self._socket.curve_secretkey = session.keys.secret.encode()
            self._socket.curve_publickey = session.keys.public.encode()
            self._socket.zap_domain = b"outpace"
            self._socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # nobody comes in without the gate
        free = address.count(":") == 1
        try:
            self._socket.bind(f"{address}:*" if free else address)
        except zmq.ZMQError as error:
            self.close(linger_s=0)
            raise ConfigError(f"cannot listen at {address}: {error}") from None
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def peers(self) -> list[str]:
        """Those who have sent something acceptable and are still there."""
        return [
            peer.name
            for peer in self._peers.values()
            if peer.connection != _CLOSED and not peer.refused
        ]

    @property
    def unread(self) -> bool:
        """Is something there that has not been taken in yet?"""
        return self._socket.poll(0) != 0

    def send(self, name: str, message: WireMessage, block: Block | None = None) -> None:
        """To a peer that has called before; without effect if it is gone."""
        peer = self._named.get(name)
        if peer is not None and not peer.refused:
            try:
                self._send(peer.outgoing, peer.identity, message, block)
            except zmq.ZMQError as error:  # lost, and the monitor has not said so yet
                if error.errno != zmq.EHOSTUNREACH:
                    raise

    def refused(self, name: str) -> bool:
        """Was a message of this peer refused? What it sent before may still be on its way."""
        peer = self._named.get(name)
        return peer is not None and peer.refused

    def refuse(self, name: str, reason: str) -> None:
        """Tell the peer and the log, and never listen to it again."""
        peer = self._named.get(name)
        if peer is not None and not peer.refused:
            what = f"refused a message of {name!r}, and all further ones: {reason}"
            self._refusals.note(what, member=True)
            self.send(name, Refused(reason))
            peer.refused = True
            if peer.connection != _CLOSED:
                self._on_lost(name)

    def _take(self, frames: list[zmq.Frame]) -> bool:
        identity = bytes(frames[0].buffer)
        name = identity.decode("utf-8", "replace").partition(_TAIL)[0]
        peer: _Peer | None = None
        try:
            if self._session.keys is not None:
                self._require_own_key(name, frames[-1])
            peer = self._peers.get(identity)
            if peer is None:
                newcomer = self._newcomer(name, identity, frames[-1])
                got = newcomer.incoming.take([frame.buffer for frame in frames[1:]])
                peer = self._peers[identity] = self._named[name] = newcomer
            elif peer.refused:
                return False
            else:
                got = peer.incoming.take([frame.buffer for frame in frames[1:]])
        except WireError as error:
            if peer is None:
                self._refusals.note(f"refused a message of {name[:64]!r}: {error}")
                if isinstance(error, _Taken):
                    self._tell(identity, str(error))
            else:
                self.refuse(name, str(error))
            return False
        if got is not None:
            self._on_message(name, *got)
        return got is not None

    def _newcomer(self, name: str, identity: bytes, frame: zmq.Frame) -> _Peer:
        """Who will be a peer, if its first message is one of this run."""
        if name not in self._names:
            raise WireError("nobody of that name takes part in this run")
        if name in self._named:
            raise _Taken("it has been here already, over another connection")
        self._look()  # an event that is still unread may be of an earlier connection's end
        connection = int(frame.get(zmq.SRCFD))
        run, epoch = self._session.run, self._session.epoch
        incoming = Incoming(run, epoch, self._expected(name), self._is_finite)
        return _Peer(name, identity, connection, incoming, Outgoing(run, epoch))

    def _tell(self, identity: bytes, reason: str) -> None:
        """Who has this run's keys but is nobody's peer: perhaps the same worker, started twice."""
        outgoing = Outgoing(self._session.run, self._session.epoch)
        with contextlib.suppress(zmq.ZMQError):  # it is gone
            self._send(outgoing, identity, Refused(reason), None)

    @staticmethod
    def _require_own_key(name: str, frame: zmq.Frame) -> None:
        owner = frame.get("User-Id")
        if owner != name:
            raise WireError(f"its key is that of {owner}")

    def _gone(self, connection: int) -> None:
        for peer in self._peers.values():
            if peer.connection == connection:
                peer.connection = _CLOSED  # what it sent before is still to be read
                if not peer.refused:
                    self._on_lost(peer.name)
                return
        self._refusals.note("a connection ended over which nothing of this run had come")

    def _unfit(self, *, unclear: bool) -> None:
        self._refusals.note("refused a connection that does not speak as this run does")


class Caller(_Socket):
    """Calls one listener, named `peer`."""

    def __init__(
        self,
        context: zmq.Context[Any],
        clock: RealClock,
        session: Session,
        *,
        name: str,
        peer: str,
        endpoint: str,
        key: str,
        expect: Expect,
        on_message: OnMessage,
        on_lost: OnLost,
    ) -> None:
        super().__init__(context, clock, zmq.DEALER, session)
        self.peer = peer
        self._on_message, self._on_lost = on_message, on_lost
        self._incoming = Incoming(session.run, session.epoch, expect)
        self._outgoing = Outgoing(session.run, session.epoch)
        self._up = False
        self._failed = 0  # handshakes in a row
        self._socket.routing_id = f"{name}{_TAIL}{secrets.token_hex(8)}".encode()
        if session.keys is not None:
            self._socket.curve_serverkey = key.encode()
            self._socket.curve_publickey = session.keys.public.encode()
            self._socket.curve_secretkey = session.keys.secret.encode()
        self._socket.connect(endpoint)

    @property
    def up(self) -> bool:
        """Is there a connection?"""
        return self._up

    def send(self, message: WireMessage, block: Block | None = None) -> None:
        """Queue it; delivered in order. Raises WireError if the peer refused the connection."""
        try:
            self._send(self._outgoing, None, message, block)
        except zmq.Again:
            self._monitor.poll(_NEWS_MS)
            self._look()
            raise WireError(f"the connection to {self.peer} has ended") from None

    def _take(self, frames: list[zmq.Frame]) -> bool:
        buffers: list[Frame] = [frame.buffer for frame in frames]
        try:
            got = self._incoming.take(buffers)
        except WireError as error:
            raise WireError(f"{self.peer} sent what is no message of this run: {error}") from None
        if got is not None:
            self._on_message(self.peer, *got)
        return got is not None

    def _gone(self, _: int) -> None:
        if self._up:  # else it was a handshake
            self._up = False
            self._on_lost(self.peer)

    def _fit(self) -> None:
        self._up, self._failed = True, 0

    def _unfit(self, *, unclear: bool) -> None:
        """Busy elsewhere, the peer may let the time for a handshake pass: ZeroMQ tries again."""
        self._failed += 1
        if not unclear:
            raise WireError(f"{self.peer} did not accept this process's key")
        if self._failed == _ATTEMPTS:
            raise WireError(f"{self.peer} did not answer {_ATTEMPTS} attempts to connect")
