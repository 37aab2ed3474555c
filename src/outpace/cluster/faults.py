"""Failures of the machines of a simulated cluster: when they happen, and how long repairs take.

The times between the random failures of a node are independent and exponential, so a node fails at
a constant rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

from outpace.support.checks import NotNegative, Positive, check_ranges
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds


@dataclass(frozen=True, slots=True)
class Fault:
    """A process that is killed at a given time.

    Attributes:
        at_s: seconds of virtual time.
        worker, server: number of the node; exactly one of the two.
        kind: `crash`: the process is killed.

    Raises:
        ValueError: unless exactly one node is given.
    """

    at_s: NotNegative
    worker: int | None = None
    server: int | None = None
    kind: Literal["crash"] = "crash"

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.worker is None) == (self.server is None):
            raise ValueError("needs exactly one of worker and server")


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Processes of workers, or of servers, that are killed at random times.

    Attributes:
        mtbf_s: mean seconds between two failures of one node; N such nodes have N times as many
            failures.
        kind: see `Fault`.
    """

    mtbf_s: Positive
    kind: Literal["crash"] = "crash"

    def __post_init__(self) -> None:
        check_ranges(self)

    def times(self, seed: int, purpose: str, node: int) -> Iterator[Time]:
        """Yield the times of the failures of one node (ns), without end.

        The times are a function of (seed, purpose, node).
        """
        mean_s = self.mtbf_s
        stream = RandomStream(seed, purpose, node, lambda source, n: source.exponential(mean_s, n))
        at = 0
        for n in count():
            at += max(1, nanoseconds(stream[n]))
            yield at


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long it takes to notice a failure and to repair it, in seconds.

    The defaults are measured in real runs. Checkpoints take no time, because real runs write them
    during the training.

    Attributes:
        detected_s: seconds from the death of a process until the others know.
        worker_s: seconds to start another process for a worker.
        servers_s: seconds to start all processes again after the loss of a server.
    """

    detected_s: NotNegative = 0.25
    worker_s: NotNegative = 3.0
    servers_s: NotNegative = 5.0

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Faults:
    """The failures of a run in virtual time.

    Attributes:
        workers, servers: random failures of the workers, or of the servers; None: no random
            failures.
        schedule: failures at given times.
        recovery: how long repairs take.
    """

    workers: RandomFaults | None = None
    servers: RandomFaults | None = None
    schedule: tuple[Fault, ...] = ()
    recovery: Recovery = Recovery()
