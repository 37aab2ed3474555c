"""A connection to one listener, over ZeroMQ."""

from __future__ import annotations

import contextlib
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import zmq

from outpace.real.memory.lane import Lane, MemoryMessage
from outpace.real.memory.slots import new_slots
from outpace.real.net.transport import FIRST, Handlers
from outpace.real.net.wire import Incoming, Outgoing, WireError
from outpace.real.zeromq.socket import NAME_END, MonitoredSocket
from outpace.sync.messages import WireMessage

if TYPE_CHECKING:
    from outpace.real.zeromq.transport import ZeroMQTransport

_SLOTS: Final = 3  # slots for the blocks of a connection
# number of handshakes that fail for no known reason before the caller gives up
_ATTEMPTS: Final = 5
_EVENT_MS: Final = 1000  # seconds to wait for the event that says why a connection ended


class ZeroMQCaller(MonitoredSocket):
    """A `transport.Caller`."""

    def __init__(
        self, transport: ZeroMQTransport, handlers: Handlers, peer: str, endpoint: str, key: str
    ) -> None:
        super().__init__(transport, zmq.DEALER, handlers)
        session, self.peer = self._session, peer
        self._lane = Lane(self._tell, transport.clock.later, self._log.note)
        self._incoming = Incoming(
            session.run,
            FIRST,  # because all begin again after the loss of a listener
            partial(handlers.expect, peer),
            in_slot=self._lane.block,
        )
        self._outgoing = Outgoing(session.run, session.generation)
        self._up = False
        self._failed = 0  # number of failed handshakes in a row
        self._first_ns = 0  # when the first piece of a message in several pieces was read
        # ZeroMQ serves only the first of two sockets with the same identity, so it is random.
        self._socket.routing_id = f"{transport.name}{NAME_END}{secrets.token_hex(8)}".encode()
        try:
            self._connect(endpoint, key)
        except zmq.ZMQError as error:
            self.close(linger_s=0)  # otherwise the context could not end
            raise WireError(f"cannot connect to {peer} at {endpoint!r}: {error}") from None

    def _connect(self, endpoint: str, key: str) -> None:
        keys = self._session.keys
        self._socket.curve_serverkey = key.encode()
        self._socket.curve_publickey = keys.public.encode()
        self._socket.curve_secretkey = keys.secret.encode()
        self._socket.connect(endpoint)

    @property
    def up(self) -> bool:
        return self._up

    def send(self, message: WireMessage) -> None:
        try:
            self._send(self._outgoing, None, message, self._lane)
        except zmq.Again:
            self._monitor.poll(_EVENT_MS)
            self._take_events()
            raise WireError(f"the connection to {self.peer} has ended") from None

    def share_memory(self, nbytes: int) -> None:
        if self._session.shares_memory and self._slots is None:
            self._slots = new_slots(_SLOTS, nbytes, self._log.note, is_read=False)
            self._lane.offer(self._slots)

    def _tell(self, message: WireMessage) -> None:
        """Send a message about shared memory; queued until there is a connection."""
        with contextlib.suppress(zmq.ZMQError):  # the connection has ended
            self._send(self._outgoing, None, message)

    def _take(self, frames: list[zmq.Frame]) -> bool:
        try:
            message = self._incoming.take(frames)
            if isinstance(message, MemoryMessage):
                self._lane.take(message)
                return False
        except WireError as error:
            raise WireError(f"a message of {self.peer} does not belong here: {error}") from None
        clock = self._clock
        if message is None:
            self._first_ns = self._first_ns or clock.read_ns
            return False
        clock.first_ns, self._first_ns = self._first_ns or clock.read_ns, 0
        self._handlers.on_message(self.peer, message)
        return True

    def close(self, linger_s: float = 1.0) -> None:
        self._lane.close()
        super().close(linger_s)

    def _disconnected(self, _: int) -> None:
        if self._up:  # otherwise only a handshake has ended
            self._up = False
            self._lane.close(hears=True)
            self._handlers.on_lost(self.peer)

    def _handshake_succeeded(self) -> None:
        self._up, self._failed = True, 0

    def _handshake_failed(self, *, unclear: bool) -> None:
        """Handle a failed handshake. A busy peer may be too slow for one: ZeroMQ tries again."""
        self._failed += 1
        if not unclear:
            raise WireError(f"{self.peer} did not accept this process's key")
        if self._failed == _ATTEMPTS:
            raise WireError(f"{self.peer} did not answer {_ATTEMPTS} attempts to connect")
