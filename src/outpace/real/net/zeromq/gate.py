"""Decides which keys may connect to this process's listeners (ZeroMQ's ZAP protocol)."""

from __future__ import annotations

from typing import Any, Final

import zmq
import zmq.utils.z85

from outpace.real.net.clock import RealClock
from outpace.real.net.sparse_log import SparseLog

_AT_ONCE: Final = 64  # requests answered before the kernel gets its turn
_ENDPOINT: Final = "inproc://zeromq.zap.01"


class Gate:
    """Admits the connections whose public key is in `admitted`."""

    def __init__(self, context: zmq.Context[Any], clock: RealClock, log: SparseLog) -> None:
        self.admitted: dict[str, str] = {}  # public key -> name
        self._clock, self._log = clock, log
        self._socket = context.socket(zmq.REP)
        self._socket.bind(_ENDPOINT)
        clock.watch(self._socket, self._decide)

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
