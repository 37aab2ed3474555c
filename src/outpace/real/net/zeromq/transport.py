"""The transport over ZeroMQ: TCP, with CURVE keys unless the run is insecure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import zmq

from outpace.real.net.clock import RealClock
from outpace.real.net.session import Session
from outpace.real.net.sparse_log import Log, SparseLog
from outpace.real.net.transport import Handlers
from outpace.real.net.zeromq.caller import ZeroMQCaller
from outpace.real.net.zeromq.gate import Gate
from outpace.real.net.zeromq.listener import ZeroMQListener

LOOPBACK: Final = "127.0.0.1"


class ZeroMQTransport:
    """A `transport.Transport`: the connections of the process called `name`."""

    def __init__(self, name: str, session: Session, clock: RealClock, log: Log) -> None:
        self._name, self._session, self._clock = name, session, clock
        self._context: zmq.Context[Any] = zmq.Context()
        self._log = SparseLog(log)
        self._gate: Gate | None = None
        self._open: list[ZeroMQListener | ZeroMQCaller] = []

    def listen(self, address: str, peers: Mapping[str, str], handlers: Handlers) -> ZeroMQListener:
        if self._session.keys is not None:
            if self._gate is None:
                self._gate = Gate(self._context, self._clock, self._log)
            self._gate.admitted.update({key: name for name, key in peers.items()})
        listener = ZeroMQListener(
            self._context, self._clock, self._session, handlers, address, peers, self._log
        )
        self._open.append(listener)
        return listener

    def call(self, peer: str, endpoint: str, key: str, handlers: Handlers) -> ZeroMQCaller:
        caller = ZeroMQCaller(
            self._context, self._clock, self._session, handlers, self._name, peer, endpoint, key
        )
        self._open.append(caller)
        return caller

    def close(self) -> None:
        for each in self._open:
            each.close()
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self._context.term()
