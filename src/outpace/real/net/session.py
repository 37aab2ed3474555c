"""Keys of a process, and what all messages of a run have in common."""

from __future__ import annotations

from dataclasses import dataclass

import zmq


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

    lease_s: seconds of silence after which a connection counts as lost. keys: None in an insecure
    run, whose messages are neither encrypted nor authenticated.
    """

    run: int
    epoch: int
    lease_s: float
    keys: Keys | None
