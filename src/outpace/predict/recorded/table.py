"""Recorded run times as a table: iterations by workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.errors import ConfigError

Seconds: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Nodes: TypeAlias = NDArray[np.int64]
_SHORT_S: Final = 10.0  # of a recording, below which it is too short to judge
_SHORT_STEP_S: Final = 0.01  # of an iteration, below which the clock and the system's pauses count


@dataclass(frozen=True, slots=True, eq=False)
class RunTimes:
    """The run times of N workers in T consecutive iterations.

    Args:
        seconds: Shape (T, N); NaN where a worker was not there.
        censored: Shape (T, N); True where the worker was stopped after that time and would
            have taken longer.
        node: Shape (N,); workers on one node tend to slow down together.
    """

    seconds: Seconds
    censored: Mask
    node: Nodes

    @property
    def iterations(self) -> int:
        return len(self.seconds)

    @property
    def workers(self) -> int:
        return len(self.node)

    def describe_invalid(self, *, absent: bool = True) -> str | None:
        """Describe the first time that is not positive and finite; None if there is none.

        absent: True: NaN is allowed.
        """
        wrong = ~(np.isfinite(self.seconds) & (self.seconds > 0))
        if absent:
            wrong &= ~np.isnan(self.seconds)
        if not wrong.any():
            return None
        iteration, worker = (int(place) for place in np.argwhere(wrong)[0])
        time_s = self.seconds[iteration, worker]
        return f"worker {worker}, iteration {iteration}: {time_s:g} is not a run time"


def require_valid(times: RunTimes, source: object) -> RunTimes:
    """Return the table unchanged.

    Raises ConfigError, which begins with `source`, if the table is empty, a time is not positive
    and finite, or no worker was there in an iteration.
    """
    if not times.iterations or not times.workers:
        raise ConfigError(f"{source}: has no run times")
    if problem := times.describe_invalid():
        raise ConfigError(f"{source}: {problem}; it must be positive and finite")
    empty = np.isnan(times.seconds).all(axis=1)
    if empty.any():
        raise ConfigError(f"{source}: no worker has a run time of iteration {int(empty.argmax())}")
    return times


def consecutive_nodes(workers: int, per_node: int | None) -> Nodes:
    """Return the nodes of workers that share a node with their neighbours, shape (N,).

    per_node: workers per node; None: all share one. Raises ConfigError if it is less than 1.
    """
    if per_node is None:
        return np.zeros(workers, np.int64)
    if per_node < 1:
        raise ConfigError(f"workers per node must be at least 1, not {per_node}")
    return np.arange(workers) // per_node


def too_short(seconds: float, step_s: float) -> str:
    """Return in words that a recording is too short to judge; empty if it is long enough.

    Args:
        seconds: Length of the recording.
        step_s: Mean length of an iteration.
    """
    found = []
    if seconds < _SHORT_S:
        found.append(f"{seconds:.2g} s are recorded")
    if step_s < _SHORT_STEP_S:
        found.append(f"an iteration takes {1e3 * step_s:.2g} ms")
    if not found:
        return ""
    return (
        f"too short to judge: {' and '.join(found)}, so that pauses of the machine count as "
        "much as what is compared; record at least "
        f"{_SHORT_S:g} s, with iterations of {1e3 * _SHORT_STEP_S:g} ms or more"
    )
