"""The promise for real runs: how long one takes, and how much sooner than BSP it is.

Three things decide how far a real run may be from the mean of the simulated ones:

- chance, as it differs from seed to seed;
- the error of the calibration, which is the same for all seeds;
- the evaluations: a run shows the target at the first evaluation after it has reached it. A script
  that logs rarely may show it one evaluation earlier or later for a small difference in the loss.

So the spread is that of the times at which curves cross the target, interpolated between
evaluations, and the interval contains one evaluation more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from outpace.config.cluster_files import DRAW, INCLUDE
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.advising.candidates import BSP
from outpace.experiment.advising.curves import FRESH, Curve
from outpace.experiment.advising.findings import Findings
from outpace.experiment.advising.runner import Budget, events_of
from outpace.experiment.trials import Ended, Order, Pool
from outpace.report.advice.result import Promise
from outpace.support.estimates import NOTHING, PREDICTED, Estimate, quantile

_DRAWS: Final = 12
_ITERATIONS: Final = 1600  # of all workers together, in each of these runs
_LEAST, _MOST = 50, 200  # of a worker
_OTHER_RUNS: Final = ("target", "evaluate", "optimizer", DRAW)  # keys that these do not have


def promised(
    curves: Sequence[Curve], others: Sequence[Curve], level: float, error: float | None
) -> Promise:
    """Return the intervals for the time of one real run, or for its ratio to that of another one.

    With m and s the mean and the standard deviation of n logarithms of crossings or ratios, e the
    relative error of the prediction and g the mean time between evaluations, in times of the
    crossing, the ends are exp(m - r) / (1 + g of the others) and exp(m + r) (1 + g). r = t √(v +
    s² / n + e²), Student's t with n - 1 degrees of freedom; for the error alone, r = z e. v is the
    variance of one run, or the sum of two: simulated runs of a seed have the same run times, and
    two real runs do not.

    Args:
        curves: on the fresh seeds.
        others: by which the times are divided, on the same seeds; empty: seconds.
        level: score of the target.
        error: relative standard error of predicted times, or ratios; None: unknown.
    """
    runs = [own for own in (curves, others) if own]
    times = np.array([[curve.crossing_s(level) or math.nan for curve in own] for own in runs])
    n = len(curves)
    if n < 2 or not (times > 0).all():
        return Promise(error=error)
    logs = np.log(times)
    ratios = logs[0] - sum(logs[1:])
    shown = np.log([[c.time_to(level, math.nan).time_s for c in own] for own in runs])
    mean = math.exp(np.mean(shown[0] - sum(shown[1:])))
    late, *late_others = (
        float(np.mean([curve.gap_s(level) for curve in own] / at))
        for own, at in zip(runs, times, strict=True)
    )
    further = float(np.sum(np.var(logs, axis=1, ddof=1)) + np.var(ratios, ddof=1) / n)
    centre, tail = float(np.mean(ratios)), (1 - PREDICTED) / 2

    def within(reach: float) -> Estimate:
        low = math.exp(centre - reach) / (1 + sum(late_others))
        return Estimate(mean, low, math.exp(centre + reach) * (1 + late))

    student = quantile(tail, n - 1)
    seeds = within(student * math.sqrt(further))
    if error is None:
        return Promise(seeds, NOTHING, seeds, None)
    both = within(student * math.sqrt(further + error**2))
    return Promise(seeds, within(quantile(tail) * error), both, error)


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


def prediction_error(found: Findings, name: str, pool: Pool, budget: Budget) -> PredictionError:
    """Return the error of what is predicted of a strategy, and of BSP.

    Runs of equal length without training: with the run times of the calibration, and with run times
    drawn within its errors (`draw_cluster`), on the same seeds. Their speed is the number of
    gradients in this time. The error is the root mean square of the logarithm of the ratio, drawn
    over not drawn; that of a factor over BSP is that of the strategy's ratio over BSP's, seed by
    seed. Numbers of gradients are whole, so an error is slightly too large.
    """
    source, fresh = found.problem.source, found.on(FRESH)
    if found.problem.data.get(INCLUDE) is None:
        return PredictionError(reason="no cluster file states errors")
    if len(fresh.get(BSP, ())) < 2:
        return PredictionError(reason="there are too few fresh seeds")
    layers = _layers(found)
    orders = []
    try:
        for each in dict.fromkeys((BSP, name)):
            data = _without_training(found, each, list(fresh[each].values()), layers)
            for seed in range(_DRAWS):
                for drawn in (False, True):
                    run = {**data, "seed": found.seeds[0] + seed, **({DRAW: True} if drawn else {})}
                    experiment = experiment_from(run, source.name, source.folder)
                    orders.append(Order((each, seed, drawn), experiment))
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
    return errors_of({order.key: gradients.get(order.key, 0.0) for order in orders})


def errors_of(gradients: Mapping[Any, float]) -> PredictionError:
    """Return the errors of strategies.

    Args:
        gradients: in equal time, by strategy, seed, and whether run times were drawn; of BSP first.
    """
    if not all(gradients.values()):
        return PredictionError(reason="the runs that would show it failed")
    logs: dict[str, list[float]] = {}
    for (name, seed, drawn), count in gradients.items():
        if drawn:
            logs.setdefault(name, []).append(math.log(count / gradients[name, seed, False]))
    of_time = {name: float(np.sqrt(np.mean(np.square(own)))) for name, own in logs.items()}
    bsp, *others = (np.array(own) for own in logs.values())
    of_speedup = [float(np.sqrt(np.mean((own - bsp) ** 2))) for own in others]
    return PredictionError(of_time, next(iter(of_speedup), None))


def _gradients(summary: Mapping[str, Any]) -> float:
    """Return how many gradients were applied, or iterations done where none are counted."""
    return float(summary.get("gradients_applied") or sum(summary.get("iterations") or ()))


def _layers(found: Findings) -> list[int]:
    """Return the sizes of the model's layers; of a script, the size of its model as a whole."""
    problem = found.problem
    if problem.is_script:
        return [
            next(int(size) for c in found.trials.values() if (size := c.totals.get("parameters")))
        ]
    base = problem.source.experiment()
    workload = base.task.workload(base.workers, base.batch_size, base.seed)
    return [int(size) for size in workload.layers]


def _without_training(
    found: Findings, name: str, curves: Sequence[Curve], layers: list[int]
) -> dict[str, Any]:
    """Return the configuration of a strategy's runs that have times and no training."""
    done = math.fsum(curve.totals.get("iterations", 0.0) for curve in curves)
    iteration_s = math.fsum(curve.end_s for curve in curves) / max(done, 1.0)
    data = found.problem.configured(name, found.used_rate(name))
    kept = {key: value for key, value in data.items() if key not in _OTHER_RUNS}
    count = min(_MOST, max(_LEAST, _ITERATIONS / found.problem.workers))
    stop = {"virtual_time_s": max(1e-6, count * iteration_s)}
    return {**kept, "task": {"kind": "timing", "layers": layers}, "stop": stop}
