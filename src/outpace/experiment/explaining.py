"""Explains a run: the causes that slow it, and the time that it would take without them.

For the gain of a repair the run is simulated with its recorded run times twice: unchanged, and
without the delay that a slow worker or link added. Both simulations have the same noise, so only
the repair differs. Nothing is trained; messages have the sizes of the run. The network and the
servers of a real run come from a calibration; for a simulated run they are known. The run itself
takes longer than its simulation, for instance because of evaluations; so the saved share of its
training is used.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

from outpace.config.keys import SERVICE_TIMES
from outpace.errors import ConfigError, OutpaceError
from outpace.experiment import running
from outpace.experiment.advising.candidates import Candidate
from outpace.experiment.calibrating import calibrate
from outpace.predict.recorded import RunTimes, write
from outpace.record.folder import MODEL
from outpace.report.explaining import Explanation, Gain
from outpace.report.explaining.causes import Examined, examined
from outpace.report.explaining.charging import Floats
from outpace.report.explaining.tables import Tables
from outpace.report.explaining.words import ALL_WORKERS, repair_of
from outpace.support.regular_files import regular
from outpace.support.yaml_files import merged

_CAUSES: Final = 3  # largest number of causes that are simulated, besides all together
_MOST: Final = 40_000  # number of gradients that are simulated
_RUN_TIMES: Final = "run-times.parquet"
_SERVICE: Final = (*SERVICE_TIMES, "service_size")
_KEYS: Final = (
    "workers",
    "servers",
    "sync",
    "network",
    "colocate",
    "pull",
    "skip",
    "conditions",
    "slicing",
    "seed",
    *_SERVICE,
)
_KEYS_OF_OVERLAP: Final = ("overlap", "forward_share", "non_finite")


def explain(
    folder: str | Path, changes: Mapping[str, Any] | None = None, *, gains: bool = True
) -> Explanation:
    """Return which worker or link slows a run, how much, and what its repair would gain.

        outpace.explain("runs/train", {"sync": {"kind": "asp"}})

    Args:
        folder: Folder of a run, real or simulated.
        changes: Keys of the configuration, such as another `sync`: the run is also simulated with
            them, to say how long it would take.
        gains: True: simulate the run again with its recorded run times, without each cause.

    Raises:
        ConfigError: With one line, if the folder is not the folder of a run, has no times, or has
            fewer than 8 iterations; or if the run cannot be simulated with the changes.
    """
    found = examined(Path(folder))
    explanation = found.explanation
    has_causes = bool(explanation.causes) or explanation.faster is not None
    if not changes and not (gains and has_causes):
        return explanation
    try:
        replay = _Replay.of_run(found.tables)
        base = replay.time_of(replay.seconds)
        found_gains = _gains(replay, found, base) if gains else []
        if changes:
            workers = changes.get("workers")
            if isinstance(workers, int) and workers > found.tables.workers:
                raise ConfigError(
                    f"workers={workers}: only the run times of {found.tables.workers} workers are "
                    "recorded; calibrate on the run, and simulate more with outpace compare"
                )
            changed = replay.time_of(replay.seconds, changes)
            found_gains.append(replay.gain(_words(changes), "", base, base - changed))
    except ConfigError as error:
        if changes:
            raise
        found_gains, notes = [], [f"what a repair would gain is not known: {error}"]
    else:
        notes = [*replay.notes]
    return replace(explanation, gains=tuple(found_gains), notes=(*explanation.notes, *notes))


@dataclass(frozen=True, slots=True, eq=False)
class _Replay:
    """A recorded run that can be simulated again, unchanged or changed.

    Args:
        data: Its configuration, without run times and stop.
        rows: Iterations that are simulated: those that all workers have, or every k-th of these.
        seconds: Their run times, shape (T, N).
        stop: When a simulation ends: like the run, after iterations or after a time.
        training_s: How long the run trained.
        notes: Sentences about how the network of the simulation differs from the run's.
    """

    tables: Tables
    data: dict[str, Any]
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    seconds: Floats
    stop: dict[str, Any]
    training_s: float
    notes: Sequence[str]

    @staticmethod
    def of_run(tables: Tables) -> _Replay:
        """Return the run in a form that can be simulated. Raises ConfigError."""
        config = tables.config
        if config.get("sync_changes"):
            raise ConfigError(f"{tables.folder}: its strategy was changed while it ran")
        if tables.has_cut_offs:
            raise ConfigError(
                f"{tables.folder}: its workers were cut off, so their whole run times are unknown"
            )
        overlaps = config.get("overlap", "none") != "none"
        keys = _KEYS + _KEYS_OF_OVERLAP * overlaps
        data = {key: config[key] for key in keys if config.get(key) is not None}
        notes: Sequence[str] = ()
        if tables.is_real:
            calibration = calibrate([tables.folder])
            law = calibration.data(_RUN_TIMES)
            data |= {key: law[key] for key in ("network", *_SERVICE) if key in law}
            notes = calibration.caveats
        if not tables.servers:
            data = {key: value for key, value in data.items() if key not in ("servers", *_SERVICE)}
        data["task"] = {"kind": "timing", "layers": _layers(tables)}
        rows = _chosen(tables.own)
        training_s = float(np.nanmax(tables.ended) - np.nanmin(tables.started))
        stop: dict[str, Any] = {"iterations": len(rows)}
        if tables.rounds is None and not tables.ends_with_iterations:
            stop = {"virtual_time_s": training_s * min(1.0, len(rows) / len(tables.own))}
        return _Replay(tables, data, rows, tables.own[rows], stop, training_s, notes)

    def time_of(self, seconds: Floats, changes: Mapping[str, Any] | None = None) -> float:
        """Return the seconds per gradient with these run times and keys. Raises ConfigError."""
        workers, sync = seconds.shape[1], (changes or {}).get("sync")
        stop = {"iterations": len(seconds)} if "iterations" in self.stop else self.stop
        data = self.data
        if isinstance(sync, Mapping) and "kind" in sync:  # also leaves out keys of the old strategy
            data = Candidate("changed", "", sync).applied(data)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _RUN_TIMES
            times = RunTimes(seconds, np.zeros(seconds.shape, np.bool_), np.arange(workers))
            write(times, path)
            compute = {"kind": "trace", "path": str(path), "wrap": True}
            data = data | {"workers": workers, "compute": compute, "stop": stop}
            try:
                summary = running.simulate(merged(data, changes or {})).summary
            except ConfigError:
                raise
            except OutpaceError as error:
                raise ConfigError(f"the run cannot be simulated again: {error}") from error
        gradients = summary["gradients_applied"] or sum(summary["iterations"])
        return float(summary["virtual_time_s"]) / max(int(gradients), 1)

    def without(self, delay: Floats, base: float) -> float:
        """Return the seconds per gradient that are saved without a delay, shape (T, N).

        The delay of a message can be longer than the worker's computation. Then all computations
        are extended by the same time in both simulations, so that no run time is negative.
        """
        more_s = max(0.0, float((delay - 0.99 * self.seconds).max()))
        seconds = self.seconds + more_s
        before = base if not more_s else self.time_of(seconds)
        return before - self.time_of(seconds - delay)

    def gain(self, change: str, cause: str, base: float, saved: float) -> Gain:
        """Return a gain from the seconds that a gradient takes, and those that are saved."""
        time_s = self.tables.time_s
        saved_s = min(self.training_s, time_s) * saved / base
        return Gain(change, cause, time_s - saved_s, saved_s)


def _gains(replay: _Replay, found: Examined, base: float) -> list[Gain]:
    """Return the gains of repairs."""
    causes, faster = found.explanation.causes, found.explanation.faster
    delays = [delay[replay.rows] for delay in found.delays]
    repairs = [
        (repair_of(cause), cause.name, delay)
        for cause, delay in list(zip(causes, delays, strict=True))[:_CAUSES]
    ]
    workers = [cause for cause in causes if cause.kind == "worker"]
    if len(workers) > 1:
        whole = np.sum([delays[causes.index(cause)] for cause in workers], axis=0)
        repairs.append((ALL_WORKERS, "", whole))
    elif faster is not None:
        slow = replay.seconds * (1 - 1 / faster.factor)
        slow[:, list(faster.workers)] = 0.0
        repairs.append((ALL_WORKERS, "", slow))
    return [
        replay.gain(change, cause, base, replay.without(delay, base))
        for change, cause, delay in repairs
    ]


def _chosen(seconds: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows that are simulated: those that all workers have, or every k-th of them."""
    whole = np.flatnonzero((seconds > 0).all(axis=1))
    if not len(whole):
        raise ConfigError("there is no iteration that all workers have finished")
    most = max(1, _MOST // seconds.shape[1])
    return np.asarray(whole[:: -(-len(whole) // most)])


def _layers(tables: Tables) -> list[int]:
    """Return the sizes of the parameter tensors of the run's model."""
    task = tables.config.get("task")
    if isinstance(task, Mapping) and task.get("kind") == "timing":
        return task.get("layers") or [int(task.get("parameters") or 1_000_000)]
    path = tables.folder / MODEL
    try:
        with safe_open(str(regular(path)), framework="numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"cannot read {path}, which says how large messages are: {error}"
        ) from None
    return [int(np.prod(shape)) for shape in shapes if 0 not in shape] or [1]


def _words(changes: Mapping[str, Any]) -> str:
    """Return the changes as text, such as `with sync.kind=ssp, sync.staleness=3`."""
    parts = [
        f"{key}.{name}={part}" if name else f"{key}={part}"
        for key, value in changes.items()
        for name, part in (value if isinstance(value, Mapping) else {"": value}).items()
    ]
    return "with " + ", ".join(parts)
