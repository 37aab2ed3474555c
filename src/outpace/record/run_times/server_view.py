"""Run times as the servers of a lockstep run see them, from the pushes in its trace.

The first iteration starts at 0, and iteration i starts when iteration i - 1 is closed. An
iteration is closed when the last shard has settled the gradients that count. A worker's run time
lasts from the start of the iteration until its gradient has reached the last shard. It includes
the transfers of parameters and gradient, and any delay from the iteration before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.table import Mask, Seconds

Ints = NDArray[np.int64]
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Pushes:
    """Columns of pushes: times in ns since the start of the run, `outcome` as in the trace."""

    worker: Ints
    shard: Ints
    iteration: Ints
    arrived: Ints
    settled: Ints
    outcome: NDArray[np.str_]


def as_servers_saw(pushes: Pushes, workers: int, cutoff: bool) -> tuple[Seconds, Mask]:
    """Return times and the mask of censored times, each of shape (closed iterations, workers).

    The time of a gradient that arrived too late is exact. The time is NaN if no gradient arrived.

    Args:
        cutoff: True if the run has cut-offs. A push without gradient is then from a worker that
            was cut off, and its time is censored when the iteration was closed. Without cut-offs
            such a push stands for a gradient that was refused, and its time is exact.
    """
    shape = int(pushes.iteration.max(initial=-1)) + 1, workers
    shards = int(pushes.shard.max(initial=-1)) + 1
    stopped = (pushes.outcome == "abstained") & cutoff
    counts = np.isin(pushes.outcome, ("applied", "abstained")) & ~stopped
    closed = np.full((shape[0], shards), _NEVER)
    at = pushes.iteration[counts], pushes.shard[counts]
    np.maximum.at(closed, at, pushes.settled[counts])
    done = (closed != _NEVER).all(axis=1)
    iterations = len(done) if done.all() else int(done.argmin())  # the last may be unfinished
    ends = closed[:iterations].max(axis=1, initial=0)
    begins = np.concatenate([[0], ends[:-1]])[:iterations]

    came = np.isin(pushes.outcome, ("applied", "dropped", "abstained"))
    at = pushes.iteration[came], pushes.worker[came]
    arrived, parts = np.full(shape, _NEVER), np.zeros(shape, np.int64)
    np.maximum.at(arrived, at, pushes.arrived[came])
    np.add.at(parts, at, 1)
    censored = np.zeros(shape, np.bool_)
    censored[pushes.iteration[stopped], pushes.worker[stopped]] = True
    censored, whole = censored[:iterations], parts[:iterations] == shards
    last = np.where(censored, ends[:, None], arrived[:iterations])
    seconds = np.where(whole | censored, (last - begins[:, None]) * 1e-9, np.nan)
    return seconds, censored
