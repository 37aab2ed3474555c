"""Reads run times from the trace in the folder of a run.

As the servers of a lockstep run see them, the first iteration starts at 0, and iteration i starts
when iteration i - 1 is closed. An iteration is closed when the last shard has settled the gradients
that count. A worker's run time lasts from the start of the iteration until its gradient has reached
the last shard. It includes the transfers of parameters and gradient, and any delay from the
iteration before.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.errors import ConfigError
from outpace.predict.recorded.table import (
    Mask,
    Nodes,
    RunTimes,
    Seconds,
    consecutive_nodes,
    require_valid,
)
from outpace.record.folder import TRACE, read_config, read_summary, trait
from outpace.record.reading import Columns, Ints, read_event
from outpace.record.tables import NONE

_TIMES: Final = ("start_ns", "end_ns")  # when a push arrived, and when it was settled


class Of(StrEnum):
    """Definitions of a run time."""

    SERVER = "server"  # from the start of the iteration to the arrival of the gradient
    COMPUTE = "compute"  # computing alone, whenever the worker started


def read_run(folder: Path, of: Of | None, workers_per_node: int | None) -> tuple[RunTimes, Of]:
    """Return the run times and their definition.

    Args:
        of: the definition; by default SERVER if the strategy is lockstep, else COMPUTE.
        workers_per_node: by default the number in the law `compute`; if it has none, one node.

    Raises:
        ConfigError: if the run times cannot be read.
    """
    config, summary = read_config(folder), read_summary(folder, lenient=True)
    lockstep = trait(summary, "lockstep")
    of = of or (Of.SERVER if lockstep else Of.COMPUTE)
    if of is Of.SERVER and not lockstep:
        raise ConfigError(
            f"{folder}: its workers do not start iterations together, so servers cannot say how "
            f"long one took; record a run in lockstep, such as bsp, or use --of compute"
        )
    pushes = _events(folder, "push", ("worker", "shard", "iteration", *_TIMES, "outcome"))
    workers, said = _count(pushes["worker"]), config.get("workers")
    if isinstance(said, int):
        workers = max(workers, said)
    names = ("worker", "iteration", "start_ns", "computed_ns")
    iterations = read_event(folder / TRACE, "iteration", names)
    # Of workers that were cut off; their times are censored. Without cut-offs, a push without a
    # gradient stands for one that was refused, whose time is exact.
    is_stopped: Mask = (pushes["outcome"] == "abstained") & ("cut_offs" in summary)
    if of is Of.SERVER:
        seconds, censored = _as_servers_saw(pushes, is_stopped, workers)
    else:
        _require_some(folder, "iteration", iterations)
        seconds, censored = _computing(iterations, pushes, is_stopped, workers)
    node = _nodes(config, seconds.shape[1], workers_per_node)
    return require_valid(RunTimes(seconds, censored, node), folder), of


def _nodes(config: Mapping[str, Any], workers: int, per_node: int | None) -> Nodes:
    law = config.get("compute")
    said = law.get("workers_per_node") if isinstance(law, Mapping) else None
    if per_node is None and isinstance(said, int) and said > 0:
        per_node = said
    return consecutive_nodes(workers, per_node)


def _as_servers_saw(pushes: Columns, is_stopped: Mask, workers: int) -> tuple[Seconds, Mask]:
    """Return times and the mask of censored times, each of shape (closed iterations, workers).

    The time of a gradient that arrived too late is exact. The time is NaN if no gradient arrived.
    That of a worker that stopped is censored when the iteration was closed.
    """
    worker, shard, iteration, arrived_at, settled_at, outcome = pushes.values()
    shape, shards = (_count(iteration), workers), _count(shard)
    counts = np.isin(outcome, ("applied", "abstained", "skipped")) & ~is_stopped
    closed = np.full((shape[0], shards), NONE)
    np.maximum.at(closed, (iteration[counts], shard[counts]), settled_at[counts])
    done = (closed != NONE).all(axis=1)
    iterations = len(done) if done.all() else int(done.argmin())  # the last may be unfinished
    ends = closed[:iterations].max(axis=1, initial=0)
    begins = np.concatenate([[0], ends[:-1]])[:iterations]

    came = np.isin(outcome, ("applied", "dropped", "abstained", "skipped"))
    at = iteration[came], worker[came]
    arrived, parts = np.full(shape, NONE), np.zeros(shape, np.int64)
    np.maximum.at(arrived, at, arrived_at[came])
    np.add.at(parts, at, 1)
    censored = np.zeros(shape, np.bool_)
    censored[iteration[is_stopped], worker[is_stopped]] = True
    censored, whole = censored[:iterations], parts[:iterations] == shards
    last = np.where(censored, ends[:, None], arrived[:iterations])
    seconds = np.where(whole | censored, (last - begins[:, None]) * 1e-9, np.nan)
    return seconds, censored


def _computing(
    iterations: Columns, pushes: Columns, is_stopped: Mask, workers: int
) -> tuple[Seconds, Mask]:
    """Return times from the trace's iterations; times of workers that stopped are censored."""
    worker, iteration, started, computed = (
        iterations[name] for name in ("worker", "iteration", "start_ns", "computed_ns")
    )
    shape = _count(iteration), max(workers, _count(worker))
    seconds, censored = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    seconds[iteration, worker] = (computed - started) * 1e-9
    mine = is_stopped & (pushes["iteration"] < len(seconds))
    censored[pushes["iteration"][mine], pushes["worker"][mine]] = True
    censored &= ~np.isnan(seconds)
    return seconds, censored


def _events(folder: Path, event: str, names: tuple[str, ...]) -> Columns:
    """Return the rows of this event. Raises ConfigError if there are none."""
    found = read_event(folder / TRACE, event, names)
    _require_some(folder, event, found)
    return found


def _require_some(folder: Path, event: str, rows: Columns) -> None:
    if not len(rows["worker"]):
        raise ConfigError(f"{folder / TRACE}: there is no {event} in it; record a longer run")


def _count(numbers: Ints) -> int:
    """Return the count of things that are numbered from 0."""
    return int(numbers.max(initial=-1)) + 1
