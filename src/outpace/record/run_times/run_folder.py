"""Reads run times from the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from outpace.record.run_times.server_view import Ints, Pushes, as_servers_saw
from outpace.sync import POLICIES

CUTOFF: Final = "cutoff"
# In lockstep, workers start every iteration together, so each iteration has one start time.
LOCKSTEP: Final = tuple(kind for kind, policy in POLICIES.items() if policy.lockstep)


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
    path = folder / TRACE
    cutoff = CUTOFF in _kinds(config)
    pushes = _pushes(path)
    workers = _workers(config, pushes)
    if of is Of.SERVER:
        seconds, censored = as_servers_saw(pushes, workers, cutoff)
    else:
        seconds, censored = _computing(path, workers, pushes if cutoff else None)
    node = _nodes(config, seconds.shape[1], workers_per_node)
    return require_valid(RunTimes(seconds, censored, node), folder), of


def is_lockstep(config: Mapping[str, Any]) -> bool:
    """True if every worker waits until an iteration is closed on all servers."""
    return (
        set(_kinds(config)) <= set(LOCKSTEP)
        and config.get("pull") is None
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


def _workers(config: Mapping[str, Any], pushes: Pushes) -> int:
    seen = int(pushes.worker.max(initial=-1)) + 1
    said = config.get("workers")
    return max(seen, said) if isinstance(said, int) else seen


def _computing(path: Path, workers: int, cut_off: Pushes | None) -> tuple[Seconds, Mask]:
    """Return times from the trace's iterations; times of workers cut off are censored."""
    rows = _events(path, "iteration", ("worker", "iteration", "start_ns", "computed_ns"))
    worker, iteration = _column(rows, "worker"), _column(rows, "iteration")
    took = _column(rows, "computed_ns") - _column(rows, "start_ns")
    shape = int(iteration.max(initial=-1)) + 1, max(workers, int(worker.max(initial=-1)) + 1)
    seconds, censored = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    seconds[iteration, worker] = took * 1e-9
    if cut_off is not None:
        stopped = (cut_off.outcome == "abstained") & (cut_off.iteration < len(seconds))
        censored[cut_off.iteration[stopped], cut_off.worker[stopped]] = True
        censored &= ~np.isnan(seconds)
    return seconds, censored


def _pushes(path: Path) -> Pushes:
    names = ("worker", "shard", "iteration", "start_ns", "end_ns")
    rows = _events(path, "push", (*names, "outcome"))
    outcome = rows["outcome"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(np.str_)
    worker, shard, iteration, arrived, settled = (_column(rows, name) for name in names)
    return Pushes(worker, shard, iteration, arrived, settled, outcome)


def _events(path: Path, event: str, names: tuple[str, ...]) -> pa.Table:
    """Return the rows of this event. Raises ConfigError if there are none."""
    try:
        rows = pq.read_table(path, columns=["event", *names], partitioning=None)
        found = rows.filter(pc.equal(rows["event"].cast(pa.string()), event))
    except FileNotFoundError:
        raise ConfigError(f"{path.parent} is not the folder of a run: it has no {TRACE}") from None
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not found.num_rows:
        raise ConfigError(f"{path}: there is no {event} in it; record a longer run")
    return found


def _column(rows: pa.Table, name: str) -> Ints:
    found: Ints = rows[name].cast(pa.int64()).to_numpy()
    return found
