"""Simulate a run again without its slow workers and links, to find the time that this saves.

The run is simulated twice with the run times that it recorded: as they were, and without the
excess of a slow worker. Both have the same noise, so only the repair differs. Nothing is trained;
messages have the sizes of the run. The network and the servers of a real run are those that a
calibration on it finds; those of a simulated one are known. The run itself is longer than its
simulation, for instance by evaluations; the saved share of its training is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from outpace.errors import ConfigError
from outpace.experiment.explaining.fewer import network_without
from outpace.experiment.explaining.model import Model, simulated
from outpace.experiment.explaining.repairs import repair_of
from outpace.report.explaining.explained import Examined
from outpace.report.explaining.explanation import Cause, Gain
from outpace.report.explaining.words import ALL_WORKERS, MOST_WORKERS

_CAUSES: Final = 3  # most that are simulated, beside all together


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
    if not causes and not changes and (explanation.faster is None or not of_causes):
        return [], []
    try:
        model = Model.of(found)
        workers = model.seconds.shape[1]
        if isinstance(more := changes.get("workers"), int) and more > workers:
            raise ConfigError(
                f"workers={more}: only the run times of {workers} workers are recorded; calibrate "
                "on the run, and simulate more workers with outpace compare"
            )
        with simulated(model) as time_of:
            base = time_of(model.seconds, {})
            gains, notes = _of_causes(model, causes, base, time_of) if of_causes else ([], [])
            notes = [*model.notes, *notes]
            if changes:
                gains.append(
                    _gain(model, _words(changes), "", base, time_of(model.seconds, changes))
                )
    except ConfigError as error:
        if changes:
            raise
        return [], [f"what a repair would gain is not known: {error}"]
    return gains, notes


def _of_causes(
    model: Model, causes: Sequence[Cause], base: float, time_of: Any
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
        repair = repair_of(model.found, model.data, cause)
        words = f"{cause.name} as fast as the others"
        if repair is not None:
            before, after = (_seconds_of(model, data) for data in repair)
            gains.append(_gain(model, words, cause.name, before, after))
        elif cause.pattern == "once":
            words = f"without the stop of {cause.name}"
            time_s = model.found.explanation.time_s - cause.lost_s
            gains.append(Gain(words, cause.name, time_s, cause.lost_s))
            notes.append(
                f"the time without the stop of {cause.name} is not simulated: it is that of the "
                "run less what the stop cost"
            )
        else:
            notes.append(f"{cause.name}: what its repair would gain is not known, only its cost")
    if len(model.found.explanation.causes) > 1 and len(workers) > 1:
        seconds = model.seconds - model.excess
        gains.append(_gain(model, ALL_WORKERS, "", base, time_of(seconds, {})))
    if (faster := model.found.explanation.faster) is not None:
        seconds = model.seconds / faster.factor
        fast = list(faster.workers)
        seconds[:, fast] = model.seconds[:, fast]
        gains.append(_gain(model, MOST_WORKERS, "", base, time_of(seconds, {})))
    first = next((cause for cause in workers if cause.pattern == "steady"), None)
    if first is not None and first.worker is not None and model.seconds.shape[1] > 2:
        try:
            time_s = _without_worker(model, first.worker)
        except ConfigError as error:
            notes.append(f"what the run would take without {first.name} is not known: {error}")
        else:
            gains.append(_gain(model, f"without {first.name}", first.name, base, time_s))
    return gains, notes


def _without_worker(model: Model, worker: int) -> float:
    """Return the seconds per gradient without a worker. Raises ConfigError."""
    data = dict(model.data)
    if "network" in data:
        workers, servers = model.seconds.shape[1], model.found.tables.servers
        data["network"] = network_without(data["network"], worker, workers, servers)
    return _seconds_of(replace(model, seconds=np.delete(model.seconds, worker, axis=1)), data)


def _seconds_of(model: Model, data: dict[str, Any]) -> float:
    """Return the seconds per gradient with another network or other servers."""
    with simulated(replace(model, data=data)) as time_of:
        return float(time_of(model.seconds, {}))


def _gain(model: Model, change: str, cause: str, base: float, per_gradient: float) -> Gain:
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
