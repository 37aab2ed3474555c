"""Runs the best strategies on real processes, and says how the predictions held."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from outpace.errors import OutpaceError
from outpace.experiment.advising.judging.found import Found
from outpace.experiment.advising.progress import State
from outpace.experiment.advising.question.candidates import BSP
from outpace.experiment.advising.question.curves import Bound, Trial
from outpace.experiment.advising.question.problem import Problem
from outpace.experiment.running import run, simulate

VERIFY_S: Final = 60.0  # seconds of each strategy, at most
_BEST: Final = 3


def verified(
    problem: Problem,
    found: Found,
    advice: Mapping[str, Any],
    say: Callable[[str], None],
    show: Callable[[State], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Return for the best three strategies and BSP what was predicted and what was measured.

    Each is run for real on the first fresh seed until the target, or VERIFY_S, and in virtual time
    with the same configuration. Without the target, the iterations of a worker are compared. A law
    of run times in the configuration stretches real steps, one in a cluster file does not.
    """
    fresh = [each for each in advice["candidates"] if each["fresh"] and each["reached"]]
    fresh.sort(key=lambda each: each["time_to_target_s"]["mean"])
    names = list(dict.fromkeys([*(each["name"] for each in fresh[:_BEST]), BSP]))
    results = []
    for place, name in enumerate(names):
        show(State("real processes", place, len(names), None))
        results.append(_verified(problem, found, name, say))
    return results


def _verified(
    problem: Problem, found: Found, name: str, say: Callable[[str], None]
) -> dict[str, Any]:
    horizon_s = min(VERIFY_S, found.horizon_fresh_s)
    rate = found.search.best_rate(name)
    trial = Trial(name, rate, problem.seed, Bound(horizon_s, problem.goal.level))
    experiment = problem.experiment(trial, found.every_s)
    try:
        own = experiment.compute if problem.data.get("compute") is not None else None
        real = dataclasses.replace(experiment, compute=own, evaluation_time=None)
        measured = run(real).summary
        predicted = simulate(experiment).summary
    except OutpaceError as error:
        reason = str(error).splitlines()[0]
        return {"name": name, "predicted": "", "measured": f"failed: {reason}", "error": None}
    times = [each.get("time_to_target_s") for each in (predicted, measured)]
    if all(isinstance(each, float | int) and each > 0 for each in times):
        values, unit = [float(each) for each in times if each is not None], "s to the target"
    else:
        values, unit = [_iterations(each) for each in (predicted, measured)], "iterations"
    off = values[0] / values[1] - 1 if values[1] > 0 else math.nan
    found_words = {
        "name": name,
        "predicted": f"{values[0]:.4g} {unit}",
        "measured": f"{values[1]:.4g} {unit}",
        "error": off if math.isfinite(off) else None,
    }
    say(f"{name}: {found_words['predicted']} predicted, {found_words['measured']} for real")
    return found_words


def _iterations(summary: Mapping[str, Any]) -> float:
    done = summary.get("iterations") or [0]
    return float(sum(done)) / len(done)
