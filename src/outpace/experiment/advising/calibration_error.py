"""How well a prediction is known: the errors that the calibration of the cluster states."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from outpace.config.cluster_files import DRAW, INCLUDE
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.advising.budget import Budget
from outpace.experiment.advising.candidates import BSP
from outpace.experiment.advising.curves import Curve
from outpace.experiment.advising.problem import Problem
from outpace.experiment.advising.runner import events_of
from outpace.experiment.trials import Ended, Order, Pool

_DRAWS: Final = 12
_ITERATIONS: Final = 1600  # of all workers together, in each of these runs
_LEAST, _MOST = 50, 200  # of a worker
_OTHER_RUNS: Final = ("target", "evaluate", "stop", DRAW)  # keys that these runs do not have


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


def prediction_error(
    problem: Problem,
    fresh: Mapping[str, tuple[float, list[Curve]]],
    pool: Pool,
    budget: Budget,
) -> PredictionError:
    """Return the error of what is predicted of strategies.

    Runs of equal length without training, under BSP and under the strategy: with the run times of
    the calibration, and with run times drawn within its errors (`draw_cluster`), on the same seeds.
    Their speed is the number of gradients in this time. The error is the root mean square of the
    logarithm of the ratio, drawn over not drawn; that of a factor over BSP is that of the
    strategy's ratio over BSP's, seed by seed. Numbers of gradients are whole, so an error is
    slightly too large.

    Args:
        fresh: learning rate and curves on the fresh seeds, of BSP and the strategy, in this order;
            or of BSP alone.
    """
    if problem.data.get(INCLUDE) is None:
        return PredictionError(reason="no cluster file states errors")
    if not fresh:
        return PredictionError(reason="there are too few fresh seeds")
    layers = _layers(problem, fresh[BSP][1])
    if layers is None:
        return PredictionError(reason="the size of the model is not known")
    source, orders = problem.source, []
    try:
        for name, (rate, curves) in fresh.items():
            data = _without_training(problem, name, rate, curves, layers)
            for seed in range(problem.seed, problem.seed + _DRAWS):
                for drawn in (False, True):
                    run = {**data, "seed": seed, **({DRAW: True} if drawn else {})}
                    experiment = experiment_from(run, source.name, source.folder)
                    orders.append(Order((name, seed, drawn), experiment))
    except ConfigError as error:
        why = str(error).partition("cannot be drawn: ")[2] or str(error).splitlines()[0]
        return PredictionError(reason=why)
    gradients = {
        event.key: _gradients(event.summary)
        for event in events_of(pool, orders, budget)
        if isinstance(event, Ended) and event.status == "complete"
    }
    if budget.over:
        return PredictionError(reason="there was no time for the runs that would show it")
    ratios: dict[str, dict[int, float]] = {name: {} for name in fresh}
    for name, seed, _ in (order.key for order in orders):  # type: ignore[misc]
        with_errors, without = (gradients.get((name, seed, each), 0.0) for each in (True, False))
        if with_errors > 0 and without > 0:
            ratios[name][seed] = math.log(with_errors / without)
    return errors_of(ratios)


def errors_of(ratios: Mapping[str, Mapping[int, float]]) -> PredictionError:
    """Return the errors of strategies.

    Args:
        ratios: logarithms of gradients in equal time, drawn over not drawn, by strategy and seed;
            of BSP first.
    """
    bsp, *others = ratios
    if any(len(own) < 2 for own in ratios.values()):
        return PredictionError(reason="the runs that would show it failed")
    of_time = {name: _root_mean_square(own.values()) for name, own in ratios.items()}
    for name in others:
        pairs = [v - ratios[bsp][s] for s, v in ratios[name].items() if s in ratios[bsp]]
        return PredictionError(of_time, _root_mean_square(pairs) if len(pairs) > 1 else None)
    return PredictionError(of_time)


def _root_mean_square(values: Collection[float]) -> float:
    return float(np.sqrt(np.mean(np.square([*values]))))


def _gradients(summary: Mapping[str, Any]) -> float:
    """Return how many gradients were applied, or iterations done where none are counted."""
    return float(summary.get("gradients_applied") or sum(summary.get("iterations") or ()))


def _layers(problem: Problem, curves: list[Curve]) -> list[int] | None:
    """Return the sizes of the model's layers; of a script, the size of its model as a whole."""
    if problem.is_script:
        sizes = (curve.totals.get("parameters") for curve in curves)
        size = next((size for size in sizes if size), None)
        return None if size is None else [int(size)]
    source = problem.source
    base = source.with_given(experiment_from(problem.data, source.name, source.folder))
    try:
        workload = base.task.workload(base.workers, base.batch_size, base.seed)
        return [int(size) for size in workload.layers]
    except (AttributeError, ConfigError):
        return None


def _without_training(
    problem: Problem, name: str, rate: float, curves: list[Curve], layers: list[int]
) -> dict[str, Any]:
    """Return the configuration of a strategy's runs that have times and no training."""
    done = math.fsum(curve.totals.get("iterations", 0.0) for curve in curves)
    iteration_s = math.fsum(curve.end_s for curve in curves) / max(done, 1.0)
    count = min(_MOST, max(_LEAST, _ITERATIONS / problem.workers))
    data = problem.configured(name, rate)
    kept = {key: value for key, value in data.items() if key not in _OTHER_RUNS}
    if problem.is_script:  # its optimizer belongs to its model
        kept.pop("optimizer", None)
    return {
        **kept,
        "task": {"kind": "timing", "layers": layers},
        "stop": {"virtual_time_s": max(1e-6, count * iteration_s)},
    }
