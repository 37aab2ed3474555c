"""Run times from the folder of a run, or from a file of recorded run times.

Run times as the servers of a lockstep run see them: the first iteration starts at 0, and iteration
i starts when iteration i - 1 is closed. An iteration is closed when the last shard has settled the
gradients that count. A worker's run time lasts from the start of the iteration until its gradient
has reached the last shard. It includes the transfers of parameters and gradient, and any delay from
the previous iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.errors import ConfigError, did_you_mean
from outpace.predict.recorded import (
    Mask,
    Nodes,
    RunTimes,
    Seconds,
    consecutive_nodes,
    read,
    require_valid,
)
from outpace.record.folder import CONFIG, TRACE, read_config, read_summary, trait
from outpace.record.reading import Columns, Ints, read_event, read_iterations
from outpace.record.tables import NONE


class Meaning(StrEnum):
    """The definition of a run time."""

    SERVER = "server"  # from the start of the iteration to the arrival of the gradient
    COMPUTE = "compute"  # only the computation, whenever the worker started


_SAID: Final = {
    Meaning.SERVER: "from the start of an iteration until the gradient is at the last server",
    Meaning.COMPUTE: "computing alone",
}


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table of run times, and the text of their definition."""

    path: Path
    times: RunTimes
    definition: str


def read_source(path: Path, of: str | None = None, workers_per_node: int | None = None) -> Source:
    """Read run times from a run's folder, or from a .parquet or .csv file.

    Args:
        path: the folder or file.
        of: `server` or `compute`, for the folder of a run; None: `server` if the strategy is in
            lockstep.
        workers_per_node: number of consecutive workers that share a node; overrides the number
            in the source.

    Raises:
        ConfigError: if there are no run times.
    """
    if of is not None and of not in list(Meaning):
        raise ConfigError(
            f"--of {of}: must be server or compute.{did_you_mean(of, map(str, Meaning))}"
        )
    if not path.exists():
        raise ConfigError(f"there is no file or folder {path}")
    if path.is_dir() and ((path / TRACE).exists() or (path / CONFIG).exists()):
        return _read_run(path, None if of is None else Meaning(of), workers_per_node)
    if of is not None:
        raise ConfigError(f"{path}: --of is for the folder of a run, not for a file: leave it out")
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(
            f"{path}: there are no run times in it; give the folder of a run, .parquet or .csv"
        )
    return Source(path, read(path, workers_per_node), "as the file has them")


def _read_run(folder: Path, of: Meaning | None, workers_per_node: int | None) -> Source:
    """Read run times from the trace in the folder of a run."""
    config, summary = read_config(folder), read_summary(folder, lenient=True)
    lockstep = trait(summary, "lockstep")
    of = of or (Meaning.SERVER if lockstep else Meaning.COMPUTE)
    if of is Meaning.SERVER and not lockstep:
        raise ConfigError(
            f"{folder}: its workers do not start iterations together, so servers cannot say how "
            f"long one took; record a run in lockstep, such as bsp, or use --of compute"
        )
    times = "start_ns", "end_ns"  # times when a push arrived and when it was settled
    pushes = _events(folder, "push", "worker", "shard", "iteration", *times, "outcome")
    workers, said = _count(pushes["worker"]), config.get("workers")
    if isinstance(said, int):
        workers = max(workers, said)
    # Pushes of workers that were cut off, whose times are censored. Without cut-offs, a push
    # without a gradient replaces a gradient that was refused; its time is exact.
    is_stopped: Mask = (pushes["outcome"] == "abstained") & ("cut_offs" in summary)
    if of is Meaning.SERVER:
        seconds, censored = _as_servers_saw(pushes, is_stopped, workers)
    else:
        seconds, censored = _computing(folder / TRACE, pushes, is_stopped, workers)
    node = _nodes(config, seconds.shape[1], workers_per_node)
    found = require_valid(RunTimes(seconds, censored, node), folder)
    return Source(folder, found, _SAID[of])


def _nodes(config: Mapping[str, Any], workers: int, per_node: int | None) -> Nodes:
    law = config.get("compute")
    said = law.get("workers_per_node") if isinstance(law, Mapping) else None
    if per_node is None and isinstance(said, int) and said > 0:
        per_node = said
    return consecutive_nodes(workers, per_node)


def _as_servers_saw(pushes: Columns, is_stopped: Mask, workers: int) -> tuple[Seconds, Mask]:
    """Return times and the mask of censored times, each of shape (closed iterations, workers).

    The time of a gradient that arrived too late is exact. The time is NaN if no gradient arrived.
    If a worker stopped, its time is censored at the end of the iteration.
    """
    worker, shard, iteration, arrived_at, settled_at, outcome = pushes.values()
    shape, shards = (_count(iteration), workers), _count(shard)
    counts = np.isin(outcome, ("applied", "abstained", "skipped")) & ~is_stopped
    closed = np.full((shape[0], shards), NONE)
    np.maximum.at(closed, (iteration[counts], shard[counts]), settled_at[counts])
    done = (closed != NONE).all(axis=1)
    # the last iteration may be unfinished
    iterations = len(done) if done.all() else int(done.argmin())
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
    trace: Path, pushes: Columns, is_stopped: Mask, workers: int
) -> tuple[Seconds, Mask]:
    """Return times from the trace's iterations; times of workers that stopped are censored."""
    times = read_iterations(trace, workers)
    seconds = np.round(times.computed - times.started, 9)  # whole ns, as the trace has them
    censored = np.zeros(seconds.shape, np.bool_)
    mine = is_stopped & (pushes["iteration"] < len(seconds))
    censored[pushes["iteration"][mine], pushes["worker"][mine]] = True
    censored &= ~np.isnan(seconds)
    return seconds, censored


def _events(folder: Path, event: str, *names: str) -> Columns:
    """Return the rows of this event. Raises ConfigError if there are none."""
    found = read_event(folder / TRACE, event, names)
    if not len(found["worker"]):
        raise ConfigError(f"{folder / TRACE}: there is no {event} in it; record a longer run")
    return found


def _count(numbers: Ints) -> int:
    """Return the number of items that are numbered from 0."""
    return int(numbers.max(initial=-1)) + 1
