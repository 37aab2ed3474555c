"""Runs the best strategies on real processes, and says how the predictions held."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError
from outpace.experiment.advising.curves import FRESH, Trial
from outpace.experiment.advising.findings import Findings
from outpace.experiment.advising.runner import Show, shows_nothing
from outpace.experiment.running import run, simulate
from outpace.report.advice.result import BSP, AdviceResult, Verified

VERIFY_S: Final = 60.0  # seconds of each strategy, at most
_BEST: Final = 3


def verified(
    found: Findings,
    advice: AdviceResult,
    say: Callable[[str], None],
    show: Show = shows_nothing,
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
        show("real processes", place, len(names))
        limit_s, every_s = min(VERIFY_S, found.horizon_s), advice.evaluated_every_s
        rate, seed = found.used_rate(name), found.seeds[0]
        trial = Trial(FRESH, name, rate, seed, limit_s, every_s=every_s)
        is_stretched = found.problem.data.get("compute") is not None
        results.append(_verified(name, found.problem.experiment(trial), is_stretched))
        say(f"{name}: {results[-1].predicted} predicted, {results[-1].measured} for real")
    return tuple(results)


def _verified(name: str, experiment: Experiment, is_stretched: bool) -> Verified:
    """Return what was predicted and measured. is_stretched: real steps take what the law says."""
    law = experiment.compute if is_stretched else None
    real = dataclasses.replace(experiment, compute=law, evaluation_time=None)
    try:
        summaries = [simulate(experiment).summary, run(real).summary]
    except OutpaceError as error:
        return Verified(name, "", f"failed: {str(error).splitlines()[0]}", None)
    values, unit = [each.get("time_to_target_s") or 0.0 for each in summaries], "s to the target"
    if not all(values):
        values, unit = [_iterations(each) for each in summaries], "iterations"
    predicted, measured = values
    off = predicted / measured - 1 if measured > 0 else None
    return Verified(name, f"{predicted:.4g} {unit}", f"{measured:.4g} {unit}", off)


def _iterations(summary: Mapping[str, Any]) -> float:
    done = summary.get("iterations") or [0]
    return float(sum(done)) / len(done)
