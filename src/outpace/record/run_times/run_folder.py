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
from outpace.record.folder import TRACE, read_config
from outpace.record.reading import Columns, Ints, read_event
from outpace.record.trace import NONE

CUTOFF: Final = "cutoff"
# In lockstep, workers start every iteration together, so each iteration has one start time. These
# are the policies that are `lockstep`, named here so that a report need not import torch for them.
LOCKSTEP: Final = ("bsp", "drop-stragglers", "partial-push", "cutoff")
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
    config = read_config(folder)
    lockstep = is_lockstep(config)
    of = of or (Of.SERVER if lockstep else Of.COMPUTE)
    if of is Of.SERVER and not lockstep:
        raise ConfigError(
            f"{folder}: its workers do not start iterations together, so servers cannot say how "
            f"long one took; record a run of {', '.join(LOCKSTEP)}, or use --of compute"
        )
    cutoff = CUTOFF in _kinds(config)
    pushes = _events(folder, "push", ("worker", "shard", "iteration", *_TIMES, "outcome"))
    workers, said = _count(pushes["worker"]), config.get("workers")
    if isinstance(said, int):
        workers = max(workers, said)
    if of is Of.SERVER:
        seconds, censored = _as_servers_saw(pushes, workers, cutoff)
    else:
        seconds, censored = _computing(folder, workers, pushes if cutoff else None)
    node = _nodes(config, seconds.shape[1], workers_per_node)
    return require_valid(RunTimes(seconds, censored, node), folder), of


def is_lockstep(config: Mapping[str, Any]) -> bool:
    """True if every worker waits until an iteration is closed on all servers."""
    return (
        set(_kinds(config)) <= set(LOCKSTEP)
        and config.get("pull") is None
        and not (config.get("skip") or {}).get("pull")
        and not config.get("conditions")
    )


def _kinds(config: Mapping[str, Any]) -> list[str]:
    """Return the kinds of all strategies that any server followed at any time."""
    changes = config.get("sync_changes") or ()
    parts = [config.get("sync"), *(change.get("sync") for change in changes)]
    each = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return [str(one.get("kind")) if isinstance(one, Mapping) else "" for one in each]


def _nodes(config: Mapping[str, Any], workers: int, per_node: int | None) -> Nodes:
    law = config.get("compute")
    said = law.get("workers_per_node") if isinstance(law, Mapping) else None
    if per_node is None and isinstance(said, int) and said > 0:
        per_node = said
    return consecutive_nodes(workers, per_node)


def _as_servers_saw(pushes: Columns, workers: int, cutoff: bool) -> tuple[Seconds, Mask]:
    """Return times and the mask of censored times, each of shape (closed iterations, workers).

    The time of a gradient that arrived too late is exact. The time is NaN if no gradient arrived.

    Args:
        cutoff: True if the run has cut-offs. A push without gradient is then from a worker that
            was cut off, and its time is censored when the iteration was closed. Without cut-offs
            such a push stands for a gradient that was refused, and its time is exact.
    """
    worker, shard, iteration, arrived_at, settled_at, outcome = pushes.values()
    shape, shards = (_count(iteration), workers), _count(shard)
    stopped = (outcome == "abstained") & cutoff
    counts = np.isin(outcome, ("applied", "abstained", "skipped")) & ~stopped
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
    censored[iteration[stopped], worker[stopped]] = True
    censored, whole = censored[:iterations], parts[:iterations] == shards
    last = np.where(censored, ends[:, None], arrived[:iterations])
    seconds = np.where(whole | censored, (last - begins[:, None]) * 1e-9, np.nan)
    return seconds, censored


def _computing(folder: Path, workers: int, cut_off: Columns | None) -> tuple[Seconds, Mask]:
    """Return times from the trace's iterations; times of workers cut off are censored."""
    rows = _events(folder, "iteration", ("worker", "iteration", "start_ns", "computed_ns"))
    worker, iteration, started, computed = rows.values()
    shape = _count(iteration), max(workers, _count(worker))
    seconds, censored = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    seconds[iteration, worker] = (computed - started) * 1e-9
    if cut_off is not None:
        stopped = (cut_off["outcome"] == "abstained") & (cut_off["iteration"] < len(seconds))
        censored[cut_off["iteration"][stopped], cut_off["worker"][stopped]] = True
        censored &= ~np.isnan(seconds)
    return seconds, censored


def _events(folder: Path, event: str, names: tuple[str, ...]) -> Columns:
    """Return the rows of this event. Raises ConfigError if there are none."""
    path = folder / TRACE
    found = read_event(path, event, names)
    if not len(found[names[0]]):
        raise ConfigError(f"{path}: there is no {event} in it; record a longer run")
    return found


def _count(numbers: Ints) -> int:
    """Return the count of things that are numbered from 0."""
    return int(numbers.max(initial=-1)) + 1
