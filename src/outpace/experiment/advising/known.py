"""How well a prediction is known: the errors that the calibration of the cluster states."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from outpace.config.cluster_files import DRAW, INCLUDE
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.advising.found import Found
from outpace.experiment.advising.problem import Problem
from outpace.experiment.advising.statistics import chosen
from outpace.experiment.trials import Ended, Order, Pool

_DRAWS: Final = 12
_ITERATIONS: Final = 100  # at most, of each of these runs


def reason_without(problem: Problem, found: Found) -> str:
    """Return why the error of predicted times cannot be known; empty if it can."""
    if problem.is_script:
        return "the error of the calibration is not applied to scripts"
    if problem.data.get(INCLUDE) is None:
        return "no cluster file states errors"
    return "there are too few fresh seeds" if len(found.seeds) < 2 else ""


def prediction_error(problem: Problem, found: Found, pool: Pool) -> tuple[float | None, str]:
    """Return the relative standard error of the recommended strategy's predicted times.

    Runs of equal length without training, with the run times of the calibration and with run times
    drawn within its errors (`draw_cluster`), on the same seeds: the standard deviation of the
    logarithm of the ratio of their times.

    Returns:
        The error, or None and the reason.
    """
    if reason := reason_without(problem, found):
        return None, reason
    times = found.times(problem.goal.level)
    name = chosen(times, "BSP").name
    data = problem.configured(name, found.search.best_rate(name))
    base = problem.source.with_given(
        experiment_from(data, problem.source.name, problem.source.folder)
    )
    try:
        workload = base.task.workload(base.workers, base.batch_size, base.seed)
        layers = [int(size) for size in workload.layers]
    except (AttributeError, ConfigError):
        return None, "the size of the model is not known"
    iterations = max((c.totals.get("iterations", 0.0) for c in found.fresh[name]), default=0.0)
    data = {key: value for key, value in data.items() if key not in ("target", "evaluate", DRAW)}
    data["task"] = {"kind": "timing", "layers": layers}
    data["stop"] = {"iterations": max(1, min(_ITERATIONS, round(iterations)))}
    ratios: dict[int, dict[bool, float]] = {}
    try:
        for k in range(_DRAWS):
            for is_drawn in (False, True):
                run = {**data, "seed": problem.seed + k, **({DRAW: True} if is_drawn else {})}
                experiment = experiment_from(run, problem.source.name, problem.source.folder)
                pool.start(Order((k, is_drawn), experiment))
    except ConfigError as error:
        while pool.wait():
            pass
        return None, str(error).partition("cannot be drawn: ")[2] or str(error).splitlines()[0]
    while events := pool.wait():
        for event in events:
            if isinstance(event, Ended) and event.status == "complete":
                k, is_drawn = event.key  # type: ignore[misc]
                ratios.setdefault(k, {})[is_drawn] = float(event.summary["virtual_time_s"])
    logs = [math.log(each[True] / each[False]) for each in ratios.values() if len(each) == 2]
    if len(logs) < 2:
        return None, "the runs that would show it failed"
    return float(np.sqrt(np.mean(np.square(logs)))), ""
