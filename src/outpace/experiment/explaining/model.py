"""A recorded run that can be simulated again, as it was or changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

from outpace.errors import ConfigError, OutpaceError
from outpace.experiment import running
from outpace.experiment.advising.question.candidates import Candidate
from outpace.experiment.calibrating import Calibration, calibrate
from outpace.predict.recorded import RunTimes, write
from outpace.record.folder import MODEL
from outpace.report.explaining.charging import Floats, Ints
from outpace.report.explaining.explained import Examined
from outpace.report.explaining.tables import Tables
from outpace.support.regular_files import regular
from outpace.support.yaml_files import merged

_MOST: Final = 40_000  # gradients that are simulated
_BLOCK: Final = 64  # consecutive iterations
_MOST_REQUESTS: Final = 60_000  # whose messages are logged
_RUN_TIMES: Final = "run-times.parquet"
_SERVICE: Final = (
    "push_time",
    "pull_time",
    "update_time",
    "judge_time",
    "service_size",
)
_KEPT: Final = (
    "workers",
    "servers",
    "sync",
    "network",
    "colocate",
    "pull",
    "skip",
    "conditions",
    "barrier",  # of an earlier version: refused if it is global, and not left out
    "slicing",
    "seed",
    *_SERVICE,
)
_OF_OVERLAP: Final = ("overlap", "forward_share", "non_finite")


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A run that can be simulated.

    Args:
        data: Its configuration, without run times and end.
        seconds: Recorded run times, shape (T, N).
        excess: Of these, what a worker needed longer than the others.
        stop: When a simulation ends: as the run, after iterations or after a time.
        training_s: How long the run trained.
        notes: Sentences about how its network differs from that of the run.
    """

    found: Examined
    data: dict[str, Any]
    seconds: Floats
    excess: Floats
    stop: dict[str, Any]
    training_s: float
    notes: Sequence[str] = ()

    @staticmethod
    def of(found: Examined) -> Model:
        """Return the run as it can be simulated. Raises ConfigError."""
        tables, config = found.tables, found.tables.config
        if config.get("sync_changes"):
            raise ConfigError(f"{tables.folder}: its strategy was changed while it ran")
        overlaps = config.get("overlap", "none") != "none"
        kept = _KEPT + _OF_OVERLAP * overlaps
        data = {key: config[key] for key in kept if config.get(key) is not None}
        seconds = found.seconds
        notes: Sequence[str] = ()
        if tables.is_real and tables.has_cut_offs:
            data["network"] = {"latency_s": _message_s(tables)}
        elif tables.is_real:
            calibration = calibrate([tables.folder])
            data |= cluster_of(calibration)
            notes = calibration.caveats
            recorded = calibration.runs[0].recording.seconds
            seconds = np.full_like(seconds, np.nan)
            rows = min(len(seconds), len(recorded))
            seconds[:rows] = recorded[:rows]
        if not tables.servers:
            data = {key: value for key, value in data.items() if key not in ("servers", *_SERVICE)}
        data["task"] = {"kind": "timing", "parameters": _parameters(found)}
        rows_ = _chosen(seconds)
        excess = np.minimum(found.excess[rows_], 0.99 * seconds[rows_])
        training_s = float(np.nanmax(tables.ended) - np.nanmin(tables.started))
        stop: dict[str, Any] = {"iterations": len(rows_)}
        if not tables.barrier and not tables.ends_with_iterations:
            stop = {"virtual_time_s": training_s * min(1.0, len(rows_) / len(seconds))}
        return Model(found, data, seconds[rows_], excess, stop, training_s, notes)


def cluster_of(calibration: Calibration) -> dict[str, Any]:
    """Return the keys of the network and the servers."""
    law = calibration.data(_RUN_TIMES)
    return {key: law[key] for key in ("network", *_SERVICE) if key in law}


def _message_s(tables: Tables) -> float:
    """Return how long a message took in a run with cut-offs, which cannot be calibrated, in s."""
    both = tables.ended - tables.computed - tables.held
    return max(float(np.nanmedian(both)) / 2, 0.0)


def _chosen(seconds: Floats) -> Ints:
    """Return the rows that are simulated: those that all workers have, or blocks of them."""
    whole = np.flatnonzero((seconds > 0).all(axis=1))
    if not len(whole):
        raise ConfigError("there is no iteration that all workers have finished")
    most = max(_BLOCK, _MOST // seconds.shape[1])
    if len(whole) <= most:
        return whole
    blocks = len(whole) // _BLOCK
    starts = np.linspace(0, blocks - 1, most // _BLOCK).round().astype(np.int64) * _BLOCK
    return np.asarray(whole[(starts[:, None] + np.arange(_BLOCK)).ravel()])


def _parameters(found: Examined) -> int:
    """Return the number of parameters of the run's model; 1 if no key depends on it."""
    task = found.tables.config.get("task")
    if isinstance(task, Mapping) and task.get("kind") == "timing":
        return int(task.get("parameters") or 1_000_000)
    path = found.tables.folder / MODEL
    try:
        with safe_open(str(regular(path)), framework="numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"cannot read {path}, which says how large messages are: {error}"
        ) from None
    return max(1, sum(int(np.prod(shape)) for shape in shapes))


@contextmanager
def logged(model: Model) -> Iterator[Path]:
    """Yield the folder of a simulation of the first iterations that logs its messages."""
    workers, servers = model.seconds.shape[1], model.found.tables.servers
    rows = model.seconds[: max(_BLOCK, _MOST_REQUESTS // (workers * servers))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _RUN_TIMES
        write(RunTimes(rows, np.zeros(rows.shape, np.bool_), np.arange(workers)), path)
        compute = {"kind": "trace", "path": str(path), "wrap": True}
        stop = model.stop
        if "iterations" in stop:
            stop = {"iterations": len(rows)}
        data = {**model.data, "workers": workers, "compute": compute, "stop": stop}
        data["network"] = {**(model.data.get("network") or {}), "log": True}
        running.simulate(data, Path(folder) / "run")
        yield Path(folder) / "run"


@contextmanager
def simulated(model: Model) -> Iterator[Any]:
    """Yield a function from run times and changes to the seconds per gradient."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _RUN_TIMES

        def time_of(seconds: Floats, changes: Mapping[str, Any]) -> float:
            node = np.arange(seconds.shape[1])
            write(RunTimes(seconds, np.zeros(seconds.shape, np.bool_), node), path)
            data, sync = dict(model.data), changes.get("sync")
            if isinstance(sync, Mapping) and "kind" in sync:  # also leaves out keys of the old one
                data = Candidate("changed", "", sync).applied(data)
            data |= {
                "workers": seconds.shape[1],
                "compute": {"kind": "trace", "path": str(path), "wrap": True},
                "stop": model.stop,
            }
            for key, value in changes.items():
                data = merged(data, {key: value})
            try:
                summary = running.simulate(data).summary
            except ConfigError:
                raise
            except OutpaceError as error:
                raise ConfigError(f"the run cannot be simulated again: {error}") from error
            gradients = summary["gradients_applied"] or sum(summary["iterations"])
            return float(summary["virtual_time_s"]) / max(int(gradients), 1)

        yield time_of
