"""Settings of PSP-SGD's experiments, Table 1, and the cost of late replies.

Partially Synchronous Parallelism SGD, section 4: 32 workers and 32 servers on the same machines;
0.16 % of the replies to pulls come 4 s late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import comb
from typing import Any

from benchmarks.papers.curves import Curve


@dataclass(frozen=True, slots=True)
class Setting:
    """A column of Table 1: c, b in per cent, running time, top-1 validation error."""

    name: str  # as in the figures
    quorum: int
    percent: float
    seconds: float  # in a unit that the paper does not give
    error: float


SETTINGS = (
    Setting("sync", 32, 100, 199.97, 0.1479),
    Setting("push 28", 28, 100, 164.97, 0.1609),
    Setting("push 28 pull 90", 28, 90, 139.95, 0.1565),
    Setting("push 20 pull 75", 20, 75, 136.54, 0.2914),
)
SYNC, PUSH, PULL, LEAST = SETTINGS


def end(curve: Curve) -> float:
    """Return the seconds at which a run ended; NaN, which agrees with no claim, if it failed."""
    return math.nan if curve.error is not None else curve.seconds[-1]


def final_error(curve: Curve) -> float:
    """Return the top-1 error on the test data at the end, NaN if the run failed."""
    return math.nan if curve.error is not None else 1 - curve.accuracy[-1]


@dataclass(frozen=True, slots=True)
class LateReplies:
    """The share of iterations that a late reply delays, in closed form.

    All computations take the same time, which is longer than the delay of a late reply. The network
    takes no other time. A server on a worker's machine answers it in time, without the network.
    """

    workers: int
    servers: int  # at most as many as workers, each on the machine of a worker
    probability: float  # of each reply
    seconds: float

    @property
    def of_a_worker(self) -> float:
        """Share of its iterations that a worker begins late if it waits for all servers."""
        return 1 - (1 - self.probability) ** (self.servers - 1)

    @property
    def of_all(self) -> float:
        """Share of iterations that any worker begins late: all wait in synchronous training."""
        return 1 - (1 - self.of_a_worker) ** self.workers

    @property
    def of_pulls(self) -> float:
        """Share of pulls that wait for a late worker in synchronous training.

        A server answers when all have pushed, so every worker that is not late waits if another
        worker is late. The share is that of workers that are not late, without iterations in which
        no worker is late.
        """
        return (1 - self.of_a_worker) - (1 - self.of_all)

    def of_quorum(self, quorum: int) -> float:
        """Return the share of iterations in which the servers have to wait for a late worker.

        A late worker stays late: its gradient is dropped, and it begins the next iteration equally
        late, until more workers are late than may be dropped. Then all begin together. So the
        servers wait in one of left[0] iterations, where left[n] is the expected number of
        iterations until more than workers − quorum are late, if n are late now: left[n] = 1 + Σ P(k
        more become late) · left[n + k].
        """
        p, spare = self.of_a_worker, self.workers - quorum
        left = [0.0] * (spare + 1)
        for late in reversed(range(spare + 1)):
            others = self.workers - late
            more = [
                comb(others, k) * p**k * (1 - p) ** (others - k) for k in range(spare - late + 1)
            ]
            on = sum(chance * left[late + k] for k, chance in enumerate(more) if k)
            left[late] = (1 + on) / (1 - more[0])
        return 1 / left[0]


def late_replies(experiment: Any) -> LateReplies:
    """Return the law of an `Experiment` with one rule of delays."""
    (rule,) = experiment.network.delays
    return LateReplies(experiment.workers, experiment.servers, rule.probability, rule.seconds)
