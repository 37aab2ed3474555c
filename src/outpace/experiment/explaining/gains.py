"""Simulate a run again without its slow workers and links, to find the time that this saves.

The run is simulated twice with the run times that it recorded: as they were, and without the
excess of a slow worker. Both have the same noise, so only the repair differs. Nothing is trained;
messages have the sizes of the run. The network and the servers of a real run are those that a
calibration on it finds; those of a simulated one are known. The run itself is longer than its
simulation, for instance by evaluations; the saved share of its training is what counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

from outpace.errors import ConfigError, OutpaceError
from outpace.experiment import running
from outpace.experiment.advising.candidates import Candidate
from outpace.experiment.calibrating import calibrate
from outpace.predict.recorded import RunTimes, write
from outpace.record.folder import MODEL
from outpace.report.explaining.charging import Floats, Ints
from outpace.report.explaining.explained import Examined
from outpace.report.explaining.explanation import Cause, Gain
from outpace.support.yaml_files import merged

_MOST: Final = 40_000  # gradients that are simulated
_BLOCK: Final = 64  # consecutive iterations
_CAUSES: Final = 3  # most that are simulated, beside all together
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
    "barrier",
    "slicing",
    "seed",
    *_SERVICE,
)


def gains_of(
    found: Examined, changes: dict[str, Any], *, of_causes: bool = True
) -> tuple[list[Gain], list[str]]:
    """Return the gains, and notes about those that are unknown.

    Args:
        changes: Keys of the configuration; a gain of them is added if there are any.
        of_causes: Simulate the run without its causes.

    Raises:
        ConfigError: if the run cannot be simulated with the changes.
    """
    explanation = found.explanation
    causes = explanation.causes[:_CAUSES] if of_causes else ()
    if not causes and not changes:
        return [], []
    try:
        model = _Model.of(found)
        with _simulated(model) as time_of:
            base = time_of(model.seconds, {})
            gains, notes = _of_causes(model, causes, base, time_of)
            if changes:
                gains.append(
                    _gain(model, _words(changes), "", base, time_of(model.seconds, changes))
                )
    except ConfigError as error:
        if changes:
            raise
        return [], [f"what a repair would gain is not known: {error}"]
    return gains, notes


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """A run that can be simulated.

    Args:
        data: Its configuration, without run times and end.
        seconds: Recorded run times, shape (T, N).
        excess: Of these, what a worker needed longer than the others.
        stop: When a simulation ends: as the run, after iterations or after a time.
        training_s: How long the run trained.
    """

    found: Examined
    data: dict[str, Any]
    seconds: Floats
    excess: Floats
    stop: dict[str, Any]
    training_s: float

    @staticmethod
    def of(found: Examined) -> _Model:
        """Return the run as it can be simulated. Raises ConfigError."""
        tables, config = found.tables, found.tables.config
        if tables.strategy == "cutoff":
            raise ConfigError(
                f"{tables.folder}: its workers were cut off, so their run times are not known"
            )
        if config.get("sync_changes"):
            raise ConfigError(f"{tables.folder}: its strategy was changed while it ran")
        data = {key: config[key] for key in _KEPT if config.get(key) is not None}
        seconds = tables.seconds
        if tables.is_real:
            calibration = calibrate([tables.folder])
            law = calibration.data(_RUN_TIMES)
            data |= {key: law[key] for key in ("network", *_SERVICE) if key in law}
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
        return _Model(found, data, seconds[rows_], excess, stop, training_s)


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
        with safe_open(str(path), framework="numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"cannot read {path}, which says how large messages are: {error}"
        ) from None
    return max(1, sum(int(np.prod(shape)) for shape in shapes))


@contextmanager
def _simulated(model: _Model) -> Iterator[Any]:
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


def _of_causes(
    model: _Model, causes: Sequence[Cause], base: float, time_of: Any
) -> tuple[list[Gain], list[str]]:
    gains: list[Gain] = []
    notes: list[str] = []
    workers = [cause for cause in causes if cause.kind == "worker"]
    for cause in causes:
        if cause.kind == "worker":
            seconds = model.seconds.copy()
            seconds[:, cause.worker] -= model.excess[:, cause.worker]
            words = f"{cause.name} as fast as the others"
            gains.append(_gain(model, words, cause.name, base, time_of(seconds, {})))
            continue
        network = _without_link(model.data.get("network"), cause)
        if network is None:
            notes.append(f"{cause.name}: what its repair would gain is not known, only its cost")
        else:
            repaired = replace(model, data={**model.data, "network": network})
            with _simulated(repaired) as of_repaired:
                time_s = of_repaired(model.seconds, {})
            words = f"{cause.name} as fast as the others"
            gains.append(_gain(model, words, cause.name, base, time_s))
    if len(model.found.explanation.causes) > 1 and len(workers) > 1:
        words = "all workers as fast as the others"
        seconds = model.seconds - model.excess
        gains.append(_gain(model, words, "", base, time_of(seconds, {})))
    first = next((cause for cause in workers if cause.pattern == "steady"), None)
    if first is not None and model.seconds.shape[1] > 2:
        others = [worker for worker in range(model.seconds.shape[1]) if worker != first.worker]
        try:
            time_s = time_of(model.seconds[:, others], {})
        except ConfigError:
            pass  # the configuration names each worker
        else:
            gains.append(_gain(model, f"without {first.name}", first.name, base, time_s))
    return gains, notes


def _without_link(network: Any, cause: Cause) -> dict[str, Any] | None:
    """Return the network without what makes a link slower; None if it says nothing about it."""
    if not isinstance(network, Mapping):
        return None
    worker, server = f"worker-{cause.worker}", f"server-{cause.server}"
    ends = {
        end
        for end, number in ((worker, cause.worker), (server, cause.server))
        if number is not None
    }
    nodes = dict(network.get("nodes") or {})
    pairs = list(network.get("pairs") or ())
    if cause.worker is None or cause.server is None:
        left = {name: law for name, law in nodes.items() if name not in ends}
    else:
        left = nodes
    kept = [pair for pair in pairs if not ends <= set(pair.get("between", ()))]
    if len(left) == len(nodes) and len(kept) == len(pairs):
        return None
    return {**network, "nodes": left, "pairs": kept}


def _gain(model: _Model, change: str, cause: str, base: float, per_gradient: float) -> Gain:
    """Return a gain from the seconds per gradient of two simulations."""
    time_s = model.found.explanation.time_s
    saved_s = min(model.training_s, time_s) * (1 - per_gradient / base)
    return Gain(change, cause, time_s - saved_s, saved_s)


def _words(changes: Mapping[str, Any]) -> str:
    parts = []
    for key, value in changes.items():
        if isinstance(value, Mapping):
            parts += [f"{key}.{name}={part}" for name, part in value.items()]
        else:
            parts.append(f"{key}={value}")
    return "with " + ", ".join(parts)
