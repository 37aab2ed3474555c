"""Who may connect: keys, the list of those admitted, and what is said of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import zmq
import zmq.utils.z85

from outpace.real.net.clock import RealClock

Log: TypeAlias = Callable[[str], None]

_AT_ONCE: Final = 64  # requests answered before the kernel gets its turn
_KINDS: Final = 256  # of refusals that are told apart
_LINE: Final = 400  # characters of one
_GATE: Final = "inproc://zeromq.zap.01"


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
    """Says what was refused: the first time, and then every time its number doubles.

    Neither the log nor memory grows with what strangers think up; what a `member` did is
    said even when they have thought up too much.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._counts: Counter[str] = Counter()

    def note(self, what: str, *, member: bool = False, first: str = "") -> None:
        """`first`: what is added when it is said the first time."""
        what = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in what[:_LINE])[:_LINE]
        if len(self._counts) >= _KINDS and what not in self._counts and not member:
            what = "refused something else"
        self._counts[what] += 1
        count = self._counts[what]
        if count & (count - 1) == 0:
            self._log(what + first if count == 1 else f"{what} ({count} times)")


class Gate:
    """Says which keys may connect to this process's listeners (ZeroMQ's ZAP protocol)."""

    def __init__(self, context: zmq.Context[Any], clock: RealClock, refusals: Refusals) -> None:
        self.admitted: dict[str, str] = {}  # public key -> name
        self._clock, self._refusals = clock, refusals
        self._socket = context.socket(zmq.REP)
        self._socket.bind(_GATE)
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
            self._refusals.note(f"refused a connection from {address.decode()}: unknown key")
            answer = [b"400", b"unknown key", b"", b""]
        else:
            answer = [b"200", b"OK", name.encode(), b""]
        self._socket.send_multipart([version, request, *answer])

    def close(self) -> None:
        self._clock.forget(self._socket)
        self._socket.close(linger=0)
