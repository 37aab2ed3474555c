"""Failures of the machines of a simulated cluster: when they happen, and how long repairs take.

The times between the random failures of a node are independent. With the `exponential`
distribution a node fails at a constant rate; with `weibull` and a shape below 1 a failure makes
the next one likelier for some time, as logs of clusters show (Schroeder and Gibson 2006 find shapes
of 0.7 to 0.8).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.support.checks import not_negative, positive, reject, require
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds

FaultKind: TypeAlias = Literal["crash", "pause", "slow", "partition", "loss"]
KINDS: Final = ("crash", "pause", "slow", "partition", "loss")
LASTING: Final = ("pause", "slow", "partition")  # the kinds that need `for_s`
RESENT_S: Final = 0.2  # after which TCP sends a lost packet again (RFC 6298, as Linux has it)


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure at a given time.

    Attributes:
        kind: crash: the process is killed. pause: it stands still for `for_s` seconds. slow: a
            worker computes `factor` times as long for `for_s` seconds. partition: for `for_s`
            seconds no message reaches the node and none of its messages arrives. loss: the next
            message of the node is lost, and sent again after `for_s` seconds (default 0.2).
        at_s: seconds of virtual time.
        worker, server: number of the node; exactly one of the two.
        for_s: seconds for which it lasts.
        factor: of the run times of a worker that is slow.

    Raises:
        ValueError: if the values contradict each other.
    """

    at_s: float
    kind: FaultKind = "crash"
    worker: int | None = None
    server: int | None = None
    for_s: float | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        if (self.worker is None) == (self.server is None):
            reject("needs exactly one of worker and server")
        _check(self.kind, self.for_s, self.factor, of_worker=self.server is None)
        # Last: it may be missing, while the others are checked.
        require(not_negative(self.at_s), "at_s", "from 0 to 1e9", self.at_s)


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Failures of each worker, or of each server, at random times.

    Attributes:
        mtbf_s: mean seconds between two failures of one node; N such nodes have N times as many.
        distribution: of the times between two failures of one node.
        shape: of the Weibull distribution; 1 is the exponential one.
        kind, for_s, factor: as in `Fault`.

    Raises:
        ValueError: if the values contradict each other.
    """

    mtbf_s: float
    distribution: Literal["exponential", "weibull"] = "exponential"
    shape: float | None = None
    kind: FaultKind = "crash"
    for_s: float | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        require(positive(self.mtbf_s), "mtbf_s", "above 0, at most 1e9", self.mtbf_s)
        if (self.distribution == "weibull") != (self.shape is not None):
            reject("needs a shape with distribution: weibull, and only there")
        if self.shape is not None:
            require(0.1 <= self.shape <= 100, "shape", "from 0.1 to 100", self.shape)
        _check(self.kind, self.for_s, self.factor, of_worker=True)

    def times(self, seed: int, purpose: str, node: int) -> Iterator[Time]:
        """Yield the times of the failures of one node (ns), which do not end.

        They are a function of (seed, purpose, node).
        """
        stream = RandomStream(seed, purpose, node, self._draw)
        at = 0
        for n in count():
            at += max(1, nanoseconds(stream[n]))
            yield at

    def _draw(self, source: np.random.Generator, n: int) -> NDArray[np.float64]:
        if self.shape is None:
            return source.exponential(self.mtbf_s, n)
        scale = self.mtbf_s / math.gamma(1.0 + 1.0 / self.shape)
        return np.minimum(scale * source.weibull(self.shape, n), 1e9)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long it takes to notice a failure and to repair it, in seconds.

    The defaults are those of real runs.

    Attributes:
        lease_s: of silence, after which a process that still exists counts as lost.
        detected_s: from the death of a process until the others know.
        worker_s: to start another process for a worker.
        servers_s: to start all processes again after the loss of a server.
        checkpoint_s: for which the servers stand still when a checkpoint is taken.
        disk_bytes_per_s: with which each server then writes its part; None: no time, as in a real
            run, which writes beside the training.
    """

    lease_s: float = 10.0
    detected_s: float = 0.25
    worker_s: float = 3.0
    servers_s: float = 5.0
    checkpoint_s: float = 0.0
    disk_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for key in ("lease_s", "detected_s", "worker_s", "servers_s", "checkpoint_s"):
            value = getattr(self, key)
            require(not_negative(value), key, "from 0 to 1e9", value)
        if self.disk_bytes_per_s is not None:
            require(self.disk_bytes_per_s > 0, "disk_bytes_per_s", "above 0", self.disk_bytes_per_s)

    def writing_s(self, size_bytes: int) -> float:
        """Return for how long a server stands still that writes so many bytes, in seconds."""
        written_s = 0.0 if self.disk_bytes_per_s is None else size_bytes / self.disk_bytes_per_s
        return self.checkpoint_s + written_s


@dataclass(frozen=True, slots=True)
class Faults:
    """The failures of a run in virtual time.

    Attributes:
        workers, servers: random failures of each of them; None: none.
        schedule: failures at given times.
        recovery: how long repairs take.
    """

    workers: RandomFaults | None = None
    servers: RandomFaults | None = None
    schedule: tuple[Fault, ...] = ()
    recovery: Recovery = Recovery()

    def __post_init__(self) -> None:
        if self.servers is not None and self.servers.kind == "slow":
            reject("servers.kind: slow is for workers; servers have push_time and others")

    def contradictions(self, workers: int, servers: int) -> Iterator[str]:
        """Yield why these failures do not fit a run with so many workers and servers."""
        if self.servers is not None and not servers:
            yield "faults.servers: the strategy has no servers: leave it out"
        for place, fault in enumerate(self.schedule):
            for key, number, most in (
                ("worker", fault.worker, workers),
                ("server", fault.server, servers),
            ):
                if number is None or 0 <= number < most:
                    continue
                where = f"faults.schedule[{place}].{key}"
                if most:
                    yield f"{where} must be from 0 to {most - 1}, not {number}"
                else:
                    yield f"{where}: the strategy has no servers: leave it out"


def _check(kind: str, for_s: float | None, factor: float | None, *, of_worker: bool) -> None:
    require(kind in KINDS, "kind", f"one of {', '.join(KINDS)}", kind)
    if for_s is not None:
        require(positive(for_s), "for_s", "above 0, at most 1e9", for_s)
    if kind in LASTING and for_s is None:
        reject(f"needs for_s with kind: {kind}, the seconds that it lasts")
    if kind == "crash" and for_s is not None:
        reject("for_s is not for a crash: faults.recovery says how long repairs take")
    if (kind == "slow") != (factor is not None):
        reject("needs a factor with kind: slow, and only there")
    if factor is not None:
        require(1 <= factor <= 1e6, "factor", "from 1 to 1e6", factor)
    if kind == "slow" and not of_worker:
        reject("kind: slow is for workers; servers have push_time and others")
