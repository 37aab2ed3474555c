"""Runs the best strategies on real processes, and says how the predictions held."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from outpace.errors import OutpaceError
from outpace.experiment.advising.curves import FRESH, Trial
from outpace.experiment.advising.findings import Findings
from outpace.experiment.advising.runner import State
from outpace.experiment.running import run, simulate
from outpace.report.advice.result import BSP, AdviceResult, Verified

VERIFY_S: Final = 60.0  # seconds of each strategy, at most
_BEST: Final = 3


def verified(
    found: Findings,
    advice: AdviceResult,
    say: Callable[[str], None],
    show: Callable[[State], None] = lambda _: None,
) -> tuple[Verified, ...]:
    """Return for the best three strategies and BSP what was predicted and what was measured.

    Each is run for real on the first fresh seed until the target, or VERIFY_S, and in virtual time
    with the same configuration. Without the target, the iterations of a worker are compared. A law
    of run times in the configuration stretches real steps, one in a cluster file does not.
    """
    best = [each.name for each in advice.in_order if each.fresh and each.reached][:_BEST]
    names = list(dict.fromkeys([*best, BSP]))
    results = []
    for place, name in enumerate(names):
        show(State("real processes", place, len(names)))
        results.append(_verified(found, name, advice.evaluated_every_s, say))
    return tuple(results)


def _verified(
    found: Findings, name: str, every_s: float | None, say: Callable[[str], None]
) -> Verified:
    limit_s, rate = min(VERIFY_S, found.horizon_s), found.used_rate(name)
    trial = Trial(FRESH, name, rate, found.seeds[0], limit_s=limit_s, every_s=every_s)
    experiment = found.problem.experiment(trial)
    try:
        own = experiment.compute if found.problem.data.get("compute") is not None else None
        real = dataclasses.replace(experiment, compute=own, evaluation_time=None)
        measured = run(real).summary
        predicted = simulate(experiment).summary
    except OutpaceError as error:
        reason = str(error).splitlines()[0]
        return Verified(name, "", f"failed: {reason}", None)
    times = [each.get("time_to_target_s") for each in (predicted, measured)]
    if all(isinstance(each, float | int) and each > 0 for each in times):
        values, unit = [float(each) for each in times if each is not None], "s to the target"
    else:
        values, unit = [_iterations(each) for each in (predicted, measured)], "iterations"
    off = values[0] / values[1] - 1 if values[1] > 0 else math.nan
    predicted_words, measured_words = (f"{value:.4g} {unit}" for value in values)
    say(f"{name}: {predicted_words} predicted, {measured_words} for real")
    return Verified(name, predicted_words, measured_words, off if math.isfinite(off) else None)


def _iterations(summary: Mapping[str, Any]) -> float:
    done = summary.get("iterations") or [0]
    return float(sum(done)) / len(done)
