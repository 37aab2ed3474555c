"""ZeroMQ sockets that speak `wire`: a Listener for many peers, a Caller for one.

Peers are called by name (worker-3), their ZeroMQ routing identity. With CURVE each
process has a key pair, and the listener holds the list of who may come: a connection
whose key is not on it is refused, and a message whose name is not that of its key is
refused too. A peer that sends what is no message of this run is told so, named in the
log and never listened to again; everybody else goes on.

A connection that closes, or is silent for a lease (ZeroMQ's heartbeats, sent by its own
threads even while Python computes), is reported as lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import zmq
import zmq.utils.z85
from zmq.utils.monitor import parse_monitor_message

from outpace.errors import ConfigError
from outpace.messages import Block
from outpace.real.bodies import Body, Refused
from outpace.real.clock import RealClock
from outpace.real.wire import (
    HEADER_BYTES,
    PIECE_BYTES,
    Expect,
    Frame,
    Incoming,
    Outgoing,
    WireError,
)

Log: TypeAlias = Callable[[str], None]
OnMessage: TypeAlias = Callable[[str, Body, "Block | None"], None]
OnLost: TypeAlias = Callable[[str], None]

LOOPBACK: Final = "tcp://127.0.0.1"
_AT_ONCE: Final = 64  # messages taken in before the kernel gets its turn
_CLOSED: Final = -1
_GATE: Final = "inproc://zeromq.zap.01"
_GONE: Final = zmq.EVENT_DISCONNECTED
_UNFIT: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


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
    """What all messages of a run have in common. Without keys everything is in the clear."""

    run: int
    epoch: int
    lease_s: float
    keys: Keys | None


class Refusals:
    """Says what was refused: the first time, and then every time its number doubles."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._counts: Counter[str] = Counter()

    def note(self, what: str) -> None:
        self._counts[what] += 1
        count = self._counts[what]
        if count & (count - 1) == 0:
            self._log(what if count == 1 else f"{what} ({count} times)")


class Gate:
    """Says which keys may connect to this process's listeners (ZeroMQ's ZAP protocol)."""

    def __init__(self, context: zmq.Context[Any], clock: RealClock, refusals: Refusals) -> None:
        self.admitted: dict[str, str] = {}  # public key -> name
        self._clock, self._refusals = clock, refusals
        self._socket = context.socket(zmq.REP)
        self._socket.bind(_GATE)
        clock.watch(self._socket, self._decide)

    def _decide(self) -> None:
        version, request, _, address, _, mechanism, *credentials = self._socket.recv_multipart()
        name = None
        if mechanism == b"CURVE" and len(credentials) == 1:
            name = self.admitted.get(zmq.utils.z85.encode(credentials[0]).decode())
        if name is None:
            self._refusals.note(f"refused a connection from {address.decode()}: unknown key")
            answer = [b"400", b"unknown key", b"", b""]
        else:
            answer = [b"200", b"OK", name.encode(), b""]
        self._socket.send_multipart([version, request, *answer])

    def close(self) -> None:
        self._clock.forget(self._socket)
        self._socket.close(linger=0)


class _Socket:
    """A socket with its monitor, watched by the clock."""

    def __init__(
        self, context: zmq.Context[Any], clock: RealClock, kind: int, session: Session
    ) -> None:
        self._clock, self._session = clock, session
        self.bytes_sent = 0
        self._socket: zmq.Socket[bytes] = context.socket(kind)
        beat_ms = max(1, int(session.lease_s * 1000))
        for option, value in (
            (zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.MAXMSGSIZE, max(HEADER_BYTES, PIECE_BYTES)),
            (zmq.HEARTBEAT_IVL, max(1, beat_ms // 5)), (zmq.HEARTBEAT_TIMEOUT, beat_ms),
            (zmq.HANDSHAKE_IVL, 10_000), (zmq.LINGER, 1000),
        ):  # fmt: skip
            self._socket.setsockopt(option, value)
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(_GONE | _UNFIT)
        clock.watch(self._monitor, self._look)  # first: before the messages of who came after
        clock.watch(self._socket, self._receive)

    def _look(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            if event["event"] == _GONE:
                self._gone(event["value"])
            else:
                self._unfit()

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._take(frames)

    def _send(
        self, outgoing: Outgoing, peer: bytes | None, body: Body, block: Block | None
    ) -> None:
        if block is not None:
            self.bytes_sent += block.nbytes
        for frames in outgoing.frames(body, block):
            parts = frames if peer is None else [peer, *frames]
            # Small frames are cheaper to copy than to share.
            self._socket.send_multipart(parts, copy=len(frames) == 1 or len(frames[1]) < 65536)

    def _take(self, frames: list[zmq.Frame]) -> None:
        raise NotImplementedError

    def _gone(self, connection: int) -> None:
        raise NotImplementedError

    def _unfit(self) -> None:
        raise NotImplementedError

    def close(self, *, at_once: bool = False) -> None:
        """What was sent is still delivered, for up to a second, unless `at_once`."""
        if self._socket.closed:
            return
        self._clock.forget(self._monitor)
        self._clock.forget(self._socket)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0 if at_once else 1000)


class _Peer:
    __slots__ = ("connection", "incoming", "name", "outgoing")

    def __init__(self, name: str, connection: int, session: Session, expect: Expect) -> None:
        self.name, self.connection = name, connection
        self.incoming = Incoming(session.run, session.epoch, expect)
        self.outgoing = Outgoing(session.run, session.epoch)


class Listener(_Socket):
    """Accepts the named peers and talks with each.

    `expected(name)` says what blocks that peer may send.
    """

    def __init__(
        self, context: zmq.Context[Any], clock: RealClock, session: Session, refusals: Refusals, *,
        names: Mapping[str, object], expected: Callable[[str], Expect], on_message: OnMessage,
        on_lost: OnLost, address: str = LOOPBACK,
    ) -> None:  # fmt: skip
        """Listens at `address`; without a port there, at a free one.

        Raises ConfigError if it is taken.
        """
        super().__init__(context, clock, zmq.ROUTER, session)
        self._refusals, self._names, self._expected = refusals, names, expected
        self._on_message, self._on_lost = on_message, on_lost
        self._peers: dict[bytes, _Peer] = {}
        self._banned: set[bytes] = set()
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if session.keys is not None:
            self._socket.curve_server = True
            self._socket.curve_secretkey = session.keys.secret.encode()
            self._socket.curve_publickey = session.keys.public.encode()
            self._socket.zap_domain = b"outpace"
        free = address.count(":") == 1
        try:
            self._socket.bind(f"{address}:*" if free else address)
        except zmq.ZMQError as error:
            self.close(at_once=True)
            raise ConfigError(f"cannot listen at {address}: {error}") from None
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def peers(self) -> list[str]:
        """Those who have sent something acceptable and are still there."""
        return [peer.name for peer in self._peers.values() if peer.connection != _CLOSED]

    def send(self, name: str, body: Body, block: Block | None = None) -> None:
        """To a peer that has called before; without effect if it is gone."""
        identity = name.encode()
        peer = self._peers.get(identity)
        if peer is not None:
            try:
                self._send(peer.outgoing, identity, body, block)
            except zmq.ZMQError as error:  # lost, and the monitor has not said so yet
                if error.errno != zmq.EHOSTUNREACH:
                    raise

    def refuse(self, name: str, reason: str) -> None:
        """Tell the peer and the log, and never listen to it again."""
        self._refuse(name.encode(), reason)

    def _take(self, frames: list[zmq.Frame]) -> None:
        identity = bytes(frames[0].buffer)
        if identity in self._banned:
            return
        peer = self._peers.get(identity)
        try:
            if peer is None:
                peer = self._welcome(identity, frames)
            elif self._session.keys is not None:
                self._require_own_name(identity, frames[-1])
            got = peer.incoming.take([frame.buffer for frame in frames[1:]])
        except WireError as error:
            self._refuse(identity, str(error))
            return
        self._peers[identity] = peer
        if got is not None:
            self._on_message(peer.name, *got)

    def _welcome(self, identity: bytes, frames: list[zmq.Frame]) -> _Peer:
        """Who may be a peer, on its first message."""
        self._require_own_name(identity, frames[-1])
        name = identity.decode("utf-8", "replace")
        if name not in self._names:
            raise WireError("nobody of that name takes part in this run")
        connection = int(frames[-1].get(zmq.SRCFD))
        return _Peer(name, connection, self._session, self._expected(name))

    def _require_own_name(self, identity: bytes, frame: zmq.Frame) -> None:
        if self._session.keys is not None and frame.get("User-Id") != identity.decode(
            "utf-8", "replace"
        ):
            raise WireError(f"its key is that of {frame.get('User-Id')}")

    def _refuse(self, identity: bytes, reason: str) -> None:
        self._banned.add(identity)
        peer = self._peers.get(identity)
        name = identity.decode("utf-8", "backslashreplace")[:64]
        self._refusals.note(f"refused a message of {name!r}, and all further ones: {reason}")
        if peer is not None:
            self.send(peer.name, Refused(reason))
            del self._peers[identity]
            self._on_lost(peer.name)

    def _gone(self, connection: int) -> None:
        for peer in self._peers.values():
            if peer.connection == connection:
                peer.connection = _CLOSED  # what it sent before is still to be read
                self._on_lost(peer.name)

    def _unfit(self) -> None:
        self._refusals.note("refused a connection that does not speak as this run does")


class Caller(_Socket):
    """Calls one listener, named `peer`."""

    def __init__(
        self, context: zmq.Context[Any], clock: RealClock, session: Session, *, name: str,
        peer: str, endpoint: str, key: str, expect: Expect, on_message: OnMessage, on_lost: OnLost,
    ) -> None:  # fmt: skip
        super().__init__(context, clock, zmq.DEALER, session)
        self.peer = peer
        self._on_message, self._on_lost = on_message, on_lost
        self._incoming = Incoming(session.run, session.epoch, expect)
        self._outgoing = Outgoing(session.run, session.epoch)
        self._socket.routing_id = name.encode()
        if session.keys is not None:
            self._socket.curve_serverkey = key.encode()
            self._socket.curve_publickey = session.keys.public.encode()
            self._socket.curve_secretkey = session.keys.secret.encode()
        self._socket.connect(endpoint)

    def send(self, body: Body, block: Block | None = None) -> None:
        """Queue it; delivered in order."""
        self._send(self._outgoing, None, body, block)

    def _take(self, frames: list[zmq.Frame]) -> None:
        buffers: list[Frame] = [frame.buffer for frame in frames]
        try:
            got = self._incoming.take(buffers)
        except WireError as error:
            raise WireError(f"{self.peer} sent what is no message of this run: {error}") from None
        if got is not None:
            self._on_message(self.peer, *got)

    def _gone(self, _: int) -> None:
        self._on_lost(self.peer)

    def _unfit(self) -> None:
        raise WireError(f"{self.peer} did not accept this process's key")
