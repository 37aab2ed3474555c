"""What every table of run times keeps to."""

from __future__ import annotations

import numpy as np

from outpace.errors import ConfigError
from outpace.predict.recorded.table import Nodes, RunTimes


def require_valid(times: RunTimes, source: object) -> RunTimes:
    """The table, if there is something in it and its times are some.

    Each is positive and finite, or NaN where a worker was not there; in every iteration
    somebody was. Raises ConfigError, naming source, worker and iteration.
    """
    if not times.iterations or not times.workers:
        raise ConfigError(f"{source}: has no run times")
    absent = np.isnan(times.seconds)
    wrong = ~absent & ~(np.isfinite(times.seconds) & (times.seconds > 0))
    if wrong.any():
        iteration, worker = (int(place) for place in np.argwhere(wrong)[0])
        raise ConfigError(
            f"{source}: worker {worker}, iteration {iteration}: "
            f"{times.seconds[iteration, worker]:g} is no run time; it must be positive and finite"
        )
    empty = absent.all(axis=1)
    if empty.any():
        raise ConfigError(f"{source}: nobody has a run time of iteration {int(empty.argmax())}")
    return times


def consecutive_nodes(workers: int, per_node: int | None) -> Nodes:
    """Nodes of so many workers with consecutive numbers; None: one node for all.

    Raises ConfigError.
    """
    if per_node is None:
        return np.zeros(workers, np.int64)
    if per_node < 1:
        raise ConfigError(f"workers per node must be at least 1, not {per_node}")
    return np.arange(workers) // per_node
