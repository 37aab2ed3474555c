"""A ZeroMQ socket with its monitor, the common part of listeners and callers."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from outpace.real.memory.lane import Lane
from outpace.real.memory.slots import OwnSlots
from outpace.real.net.block_frames import PIECE_BYTES
from outpace.real.net.transport import Handlers
from outpace.real.net.wire import HEADER_BYTES, Outgoing
from outpace.sync.messages import WireMessage

if TYPE_CHECKING:
    from outpace.real.zeromq.transport import ZeroMQTransport

NAME_END: Final = "/"  # bytes of the peer's name in a routing identity
_AT_ONCE: Final = 64  # number of messages that are received before the kernel runs
# Plain numbers: the operators of zmq's flags are Python code.
_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.SNDMORE | zmq.NOBLOCK)
_READABLE: Final = int(zmq.POLLIN)
_ACCEPTED: Final = zmq.EVENT_ACCEPTED
_DISCONNECTED: Final = zmq.EVENT_DISCONNECTED
_SUCCEEDED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_FAILED_UNCLEAR: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_FAILED: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_EVENTS: Final = _ACCEPTED | _DISCONNECTED | _SUCCEEDED | _FAILED_UNCLEAR | _FAILED
# most bytes of a frame, and the bytes that CURVE adds
_LONGEST: Final = max(HEADER_BYTES, PIECE_BYTES) + 64


class MonitoredSocket(ABC):
    """A socket whose messages and connection events are handled in the thread of the clock.

    ZeroMQ's own threads send heartbeats, so a peer is silent only if its process is stopped, not
    while Python computes.
    """

    def __init__(self, transport: ZeroMQTransport, kind: int, handlers: Handlers) -> None:
        clock, session = self._clock, self._session = transport.clock, transport.session
        self._handlers, self._log = handlers, transport.log
        self._slots: OwnSlots | None = None  # slots of this process for large blocks
        self._socket: zmq.Socket[bytes] = transport.context.socket(kind)
        self._empty_ns = 0  # time when there was nothing to read
        lease_ms = max(1, int(session.lease_s * 1000))
        for option, value in (
            # Without limits: at a limit ZeroMQ blocks the sender or drops the message.
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.MAXMSGSIZE, _LONGEST),
            # Several heartbeats per lease, so that a late heartbeat does not end a connection.
            (zmq.HEARTBEAT_IVL, max(1, lease_ms // 5)),
            (zmq.HEARTBEAT_TIMEOUT, lease_ms),
            (zmq.HANDSHAKE_IVL, 10_000),
            (zmq.LINGER, 1000),
        ):
            self._socket.setsockopt(option, value)
        self._monitor = self._new_monitor(transport.context)
        # The monitor is read first, so that a connection's end is known before messages of the next
        # one.
        clock.watch(self._monitor, self._events_came)
        clock.watch(self._socket, self._receive)

    def _new_monitor(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        """Make a monitor like get_monitor_socket, but without a limit on unread events.

        ZeroMQ's thread would wait for a full monitor, and closing the socket would wait for it.
        """
        address = f"inproc://monitor-{secrets.token_hex(8)}"
        self._socket.monitor(address, _EVENTS)
        monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        monitor.set_hwm(0)
        monitor.connect(address)
        return monitor

    def _events_came(self) -> None:
        self._take_events()

    def _take_events(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            if event["event"] == _ACCEPTED:
                self._accepted(event["value"])
            elif event["event"] == _DISCONNECTED:
                self._disconnected(event["value"])
            elif event["event"] == _SUCCEEDED:
                self._handshake_succeeded()
            else:
                self._handshake_failed(unclear=event["event"] == _FAILED_UNCLEAR)

    def _receive(self) -> None:
        """Receive up to the first whole message, which the kernel handles before the next."""
        receive, clock = self._socket.recv, self._clock
        for _ in range(_AT_ONCE):
            try:
                frame = receive(_NOBLOCK, False)
            except zmq.Again:
                self._empty_ns = monotonic_ns()
                return
            frames = [frame]
            while frame.more:
                frame = receive(0, False)
                frames.append(frame)
            before, clock.read_ns = clock.read_ns, monotonic_ns()
            clock.after_ns = max(clock.idle_ns, self._empty_ns)
            if self._take(frames):
                if clock.idle_ns < before:  # the process was busy for more than one message
                    self._note_whether_empty()
                return

    def _note_whether_empty(self) -> None:
        if not self._socket.closed and not int(self._socket.get(zmq.EVENTS)) & _READABLE:
            self._empty_ns = monotonic_ns()

    def _send(
        self,
        outgoing: Outgoing,
        identity: bytes | None,
        message: WireMessage,
        lane: Lane | None = None,
    ) -> None:
        """Send; raises zmq.Again if there is no connection and ZeroMQ does not make one.

        lane: the memory that the two processes share.
        """
        send = self._socket.send
        slot = lane.place(message) if lane is not None and lane.is_ready else None
        for header, *piece in outgoing.frames(message, slot):
            if identity is not None:
                send(identity, _MORE)
            send(header, _MORE if piece else _NOBLOCK)
            if piece:  # small blocks are cheaper to copy than to share
                send(piece[0], _NOBLOCK, len(piece[0]) < zmq.COPY_THRESHOLD)

    @abstractmethod
    def _take(self, frames: list[zmq.Frame]) -> bool:
        """Handle the frames of one part; return True if a message is complete."""

    @abstractmethod
    def _disconnected(self, connection: int) -> None:
        """Handle the end of a connection (a file descriptor)."""

    def _accepted(self, connection: int) -> None:  # noqa: B027  # callers accept none
        """Handle a new connection (a file descriptor), whose handshake begins."""

    def _handshake_succeeded(self) -> None:  # noqa: B027  # a listener need not know
        """Handle the end of a successful handshake."""

    @abstractmethod
    def _handshake_failed(self, *, unclear: bool) -> None:
        """Handle a failed handshake. unclear: ZeroMQ does not know why it failed."""

    def close(self, linger_s: float = 1.0) -> None:
        if self._socket.closed:
            return
        if self._slots is not None:
            self._slots.close()
        self._clock.forget(self._monitor)
        self._clock.forget(self._socket)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=int(linger_s * 1000))
