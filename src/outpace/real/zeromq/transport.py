"""The transport over ZeroMQ: TCP, with CURVE keys.

ZeroMQ collects all frames of a message, however many, before it passes on the message. So it must
not read frames from a process that does not belong to the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import zmq
import zmq.utils.z85

from outpace.real.net.clock import RealClock
from outpace.real.net.sparse_log import Log, SparseLog
from outpace.real.net.transport import Handlers, Session
from outpace.real.zeromq.caller import ZeroMQCaller
from outpace.real.zeromq.listener import ZeroMQListener

_AT_ONCE: Final = 64  # number of requests that are answered before the kernel runs
_GATE: Final = "inproc://zeromq.zap.01"  # the address is part of the protocol


class ZeroMQTransport:
    """A `transport.Transport`: the connections of the process called `name`.

    Its sockets share its context, its clock and its log.
    """

    def __init__(self, name: str, session: Session, clock: RealClock, log: Log) -> None:
        self.name, self.session, self.clock = name, session, clock
        self.context: zmq.Context[Any] = zmq.Context()
        self.log = SparseLog(log)
        self._gate: _Gate | None = None
        self._open: list[ZeroMQListener | ZeroMQCaller] = []

    def listen(self, address: str, peers: Mapping[str, str], handlers: Handlers) -> ZeroMQListener:
        if self._gate is None:
            self._gate = _Gate(self)
        self._gate.admitted.update({key: name for name, key in peers.items()})
        listener = ZeroMQListener(self, handlers, address, peers)
        self._open.append(listener)
        return listener

    def call(self, peer: str, endpoint: str, key: str, handlers: Handlers) -> ZeroMQCaller:
        caller = ZeroMQCaller(self, handlers, peer, endpoint, key)
        self._open.append(caller)
        return caller

    def close(self) -> None:
        for each in self._open:
            each.close()
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self.context.term()


class _Gate:
    """Admits connections by ZeroMQ's authentication protocol: their key must be in `admitted`."""

    def __init__(self, transport: ZeroMQTransport) -> None:
        self.admitted: dict[str, str] = {}  # public key -> name
        self._clock, self._log = transport.clock, transport.log
        self._socket = transport.context.socket(zmq.REP)
        self._socket.bind(_GATE)
        self._clock.watch(self._socket, self._decide)

    def _decide(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                self._answer(*self._socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return

    def _answer(
        self,
        version: bytes,
        request: bytes,
        _domain: bytes,
        address: bytes,
        _identity: bytes,
        mechanism: bytes,
        *credentials: bytes,
    ) -> None:
        name = None
        if mechanism == b"CURVE" and len(credentials) == 1:
            name = self.admitted.get(zmq.utils.z85.encode(credentials[0]).decode())
        if name is None:
            self._log.note(f"refused a connection from {address.decode()}: unknown key")
            answer = [b"400", b"unknown key", b"", b""]
        else:
            answer = [b"200", b"OK", name.encode(), b""]
        self._socket.send_multipart([version, request, *answer])

    def close(self) -> None:
        self._clock.forget(self._socket)
        self._socket.close(linger=0)
