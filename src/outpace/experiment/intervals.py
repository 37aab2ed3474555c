"""How often a run is evaluated whose configuration says nothing about it."""

from __future__ import annotations

import dataclasses
from typing import Final, TypedDict

from outpace.config.experiment import Experiment
from outpace.report.words import plural
from outpace.tasks import Script, Timing

POINTS: Final = 40  # evaluations of a run until its `stop`


class Interval(TypedDict, total=False):
    """A part of `evaluate`; at most one of the two."""

    every_updates: int
    every_s: float


def interval_of(iterations: int | None, virtual_time_s: float | None) -> Interval:
    """Return the interval with which a run has about 40 evaluations; empty without a limit.

    Args:
        iterations, virtual_time_s: limits of the run, as in `stop`. A run with servers that update
            at each gradient has as many evaluations for each of its workers.
    """
    if iterations:
        return {"every_updates": max(1, iterations // POINTS)}
    if virtual_time_s:
        return {"every_s": max(1e-6, virtual_time_s / POINTS)}
    return {}


def with_interval(experiment: Experiment) -> Experiment:
    """Return the experiment, evaluated during the run if it has a target.

    A configuration's own interval is kept. A script is not evaluated: it logs its values.
    """
    evaluate, stop = experiment.evaluate, experiment.stop
    if evaluate.every_updates is not None or evaluate.every_s is not None:
        return experiment
    if experiment.goal is None or isinstance(experiment.task, Script | Timing):
        return experiment
    found = interval_of(stop.iterations, stop.virtual_time_s)
    return dataclasses.replace(experiment, evaluate=dataclasses.replace(evaluate, **found))


def interval_words(experiment: Experiment) -> str:
    """Say with which interval `with_interval` evaluates an experiment; empty if it does not."""
    evaluate = experiment.evaluate
    if evaluate.every_s is not None:
        every = f"{evaluate.every_s:.4g} s"
    elif evaluate.every_updates is not None:
        every = plural(evaluate.every_updates, "update")
    else:
        return ""
    return f"; evaluate has no interval, so runs are evaluated about {POINTS} times: every {every}"
