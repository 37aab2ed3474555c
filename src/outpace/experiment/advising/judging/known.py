"""How well a prediction is known: the errors that the calibration of the cluster states."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.config.cluster_files import BUSY, CALIBRATED, DRAW, INCLUDE
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.advising.judging.found import Found
from outpace.experiment.advising.judging.statistics import chosen
from outpace.experiment.advising.question.candidates import BSP
from outpace.experiment.advising.question.problem import Problem
from outpace.experiment.trials import Ended, Order, Pool
from outpace.support.yaml_files import read_yaml

_DRAWS: Final = 12
_ITERATIONS: Final = 1600  # of all workers together, in each of these runs
_LEAST, _MOST = 50, 200  # of a worker
_KEPT_OUT: Final = ("target", "evaluate", "stop", DRAW)


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Relative standard errors of predictions, by the errors of the calibration.

    Attributes:
        of_time: of predicted times of a strategy, by its name; empty: unknown.
        of_speedup: of predicted factors over BSP; None: unknown, or BSP is recommended.
        reason: why it is unknown; empty if it is known.
    """

    of_time: Mapping[str, float] = field(default_factory=dict)
    of_speedup: float | None = None
    reason: str = ""


def reason_without(problem: Problem, found: Found) -> str:
    """Return why the error of predicted times cannot be known; empty if it can."""
    if problem.data.get(INCLUDE) is None:
        return "no cluster file states errors"
    return "there are too few fresh seeds" if len(found.seeds) < 2 else ""


def prediction_error(problem: Problem, found: Found, pool: Pool) -> PredictionError:
    """Return the error of what is predicted of the strategy that the fresh seeds speak for.

    Runs of equal length without training, under BSP and under the strategy: with the run times of
    the calibration, and with run times drawn within its errors (`draw_cluster`), on the same seeds.
    Their speed is the number of gradients in this time. The error is the root mean square of the
    logarithm of the ratio, drawn over not drawn; that of a factor over BSP is that of the
    strategy's ratio over BSP's, seed by seed. Numbers of gradients are whole, so an error is
    slightly too large.
    """
    if reason := reason_without(problem, found):
        return PredictionError(reason=reason)
    name = chosen(found.times(problem.goal.level), BSP).name
    layers = _layers(problem, found)
    if layers is None:
        return PredictionError(reason="the size of the model is not known")
    rates: dict[tuple[str, int], dict[bool, float]] = {}
    try:
        for each in dict.fromkeys((BSP, name)):
            data = _without_training(problem, found, each, layers)
            for k in range(_DRAWS):
                for is_drawn in (False, True):
                    run = {**data, "seed": problem.seed + k, **({DRAW: True} if is_drawn else {})}
                    experiment = experiment_from(run, problem.source.name, problem.source.folder)
                    pool.start(Order((each, k, is_drawn), experiment))
    except ConfigError as error:
        while pool.wait():
            pass
        why = str(error).partition("cannot be drawn: ")[2] or str(error).splitlines()[0]
        return PredictionError(reason=why)
    while events := pool.wait():
        for event in events:
            if isinstance(event, Ended) and event.status == "complete":
                each, k, is_drawn = event.key  # type: ignore[misc]
                rates.setdefault((each, k), {})[is_drawn] = _gradients(event.summary)
    return errors_of(name, rates)


def recorded_busy(problem: Problem) -> list[str]:
    """Return what the cluster files say of other processes that took the cores meanwhile."""
    names = problem.data.get(INCLUDE) or []
    folder = problem.source.folder or Path.cwd()
    said = []
    for name in names if isinstance(names, list) else [names]:
        calibrated = read_yaml(folder / Path(name).expanduser()).get(CALIBRATED)
        text = calibrated.get(BUSY) if isinstance(calibrated, Mapping) else None
        if isinstance(text, str):
            said.append(text)
    return said


def errors_of(
    name: str, gradients: Mapping[tuple[str, int], Mapping[bool, float]]
) -> PredictionError:
    """Return the errors of a strategy by the numbers of gradients of runs of equal length.

    Args:
        gradients: by strategy and seed, of the run whose times were drawn (True) and of that whose
            times were not (False).
    """
    logs = {
        key: math.log(each[True] / each[False])
        for key, each in gradients.items()
        if len(each) == 2 and min(each.values()) > 0
    }
    of: dict[str, dict[int, float]] = {BSP: {}, name: {}}
    for (each, seed), value in logs.items():
        of.setdefault(each, {})[seed] = value
    if len(of[name]) < 2:
        return PredictionError(reason="the runs that would show it failed")
    over = [value - of[BSP][seed] for seed, value in of[name].items() if seed in of[BSP]]
    return PredictionError(
        {each: _root_mean_square(own.values()) for each, own in of.items() if len(own) > 1},
        _root_mean_square(over) if name != BSP and len(over) > 1 else None,
    )


def _root_mean_square(values: Collection[float]) -> float:
    return float(np.sqrt(np.mean(np.square([*values]))))


def _gradients(summary: Mapping[str, Any]) -> float:
    """Return how many gradients were applied, or iterations done where none are counted."""
    return float(summary.get("gradients_applied") or sum(summary.get("iterations") or ()))


def _layers(problem: Problem, found: Found) -> list[int] | None:
    """Return the sizes of the model's layers; of a script, the size of its model as a whole."""
    if problem.is_script:
        sizes = (curve.totals.get("parameters") for curve in found.fresh[BSP])
        size = next((size for size in sizes if size), None)
        return None if size is None else [int(size)]
    base = problem.source.with_given(
        experiment_from(problem.data, problem.source.name, problem.source.folder)
    )
    try:
        workload = base.task.workload(base.workers, base.batch_size, base.seed)
        return [int(size) for size in workload.layers]
    except (AttributeError, ConfigError):
        return None


def _without_training(
    problem: Problem, found: Found, name: str, layers: list[int]
) -> dict[str, Any]:
    """Return the configuration of a strategy's runs that have times and no training."""
    curves = found.fresh[name]
    done = math.fsum(curve.totals.get("iterations", 0.0) for curve in curves)
    iteration_s = math.fsum(curve.end_s for curve in curves) / max(done, 1.0)
    count = min(_MOST, max(_LEAST, _ITERATIONS / problem.workers))
    data = problem.configured(name, found.search.best_rate(name))
    kept = {key: value for key, value in data.items() if key not in _KEPT_OUT}
    if problem.is_script:  # its optimizer belongs to its model
        kept.pop("optimizer", None)
    return {
        **kept,
        "task": {"kind": "timing", "layers": layers},
        "stop": {"virtual_time_s": max(1e-6, count * iteration_s)},
    }
