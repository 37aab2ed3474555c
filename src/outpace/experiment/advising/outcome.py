"""What a study has found, as far as it has come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outpace.errors import RunError
from outpace.experiment.advising.calibration_error import PredictionError
from outpace.experiment.advising.candidates import BSP
from outpace.experiment.advising.changed import Scenario
from outpace.experiment.advising.curves import Curve, in_words
from outpace.experiment.advising.problem import Problem
from outpace.experiment.advising.search import Search
from outpace.experiment.advising.statistics import speedup
from outpace.report.advice.result import Leader
from outpace.support.estimates import TimeTo


@dataclass(slots=True)
class Outcome:
    """What a study has found, as far as it has come.

    Attributes:
        horizon_s: virtual time at which trials of the search end; horizon_fresh_s: on fresh seeds.
        fresh: curves of the finalists and the references on the fresh seeds that all of them have.
        every_s: time between evaluations on fresh seeds; None: as configured.
        whole_s: virtual time until which some runs on fresh seeds continue after the target.
        error: of what is predicted, by the calibration.
        changed: scenarios with the times of their strategies; empty: there was no time.
        ended: `complete`; `budget` if its time was over before; or `interrupted`.
        one_run_s: real time of the first run of BSP.
        more_s: estimate of the time that the search and the fresh seeds would still need.
        cost_s: processor time of all runs. elapsed_s: real time.
        folder: of BSP's run on the first fresh seed, if it was written.
    """

    search: Search
    horizon_s: float
    fresh: dict[str, list[Curve]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    horizon_fresh_s: float = math.inf
    every_s: float | None = None
    whole_s: float = 0.0
    error: PredictionError = field(default_factory=PredictionError)
    changed: list[tuple[Scenario, dict[str, list[TimeTo]]]] = field(default_factory=list)
    ended: str = "budget"
    one_run_s: float = 0.0
    more_s: float = 0.0
    cost_s: float = 0.0
    elapsed_s: float = 0.0
    folder: Path | None = None

    @property
    def level(self) -> float:
        return self.search.space.level

    @property
    def times(self) -> dict[str, list[TimeTo]]:
        """The times to the target on the fresh seeds, by strategy."""
        return {
            name: [time_to(curve, self.level, self.horizon_fresh_s) for curve in curves]
            for name, curves in self.fresh.items()
        }

    @property
    def leader(self) -> Leader | None:
        """The strategy that is ahead of BSP: on fresh seeds if there are any, else in the search.

        None if BSP is ahead.
        """
        search, times = self.search, self.times
        if self.seeds:
            known = {
                name: over
                for name, own in times.items()
                if all(each.reached for each in own)
                and (over := speedup(own, times[BSP]).mean) is not None
            }
            best = max(known, key=lambda name: known[name], default=BSP)
            is_ahead = best != BSP and known[best] > 1
            return Leader(best, known[best], len(self.seeds), True) if is_ahead else None
        if search.best_curve is None:
            return None
        name = search.ranked()[0]
        rate = search.best_rate(name)
        gain = search.log_time(BSP, search.best_rate(BSP)) - search.log_time(name, rate)
        if name == BSP or not gain > 0:
            return None
        over_bsp = math.exp(gain) if math.isfinite(gain) else None
        return Leader(name, over_bsp, len(search.known[name].of_rate(rate)), False)


def time_to(curve: Curve, level: float, horizon_s: float) -> TimeTo:
    """Return the time to the target; a run that failed has missed it at its horizon."""
    found = curve.time_to(level)
    if found.reached or (curve.ended != "failed" and found.time_s > 0):
        return found
    return TimeTo(horizon_s, False)


def require_reached(outcome: Outcome, problem: Problem) -> None:
    """Raise RunError, with the best that was reached, unless a trial reached the target."""
    search, target = outcome.search, problem.target
    if search.best_curve is not None:
        return
    curves = [
        (curve.best, trial)
        for known in search.known.values()
        for trial, curve in known.trials.items()
        if curve.times_s
    ]
    if not curves:
        errors: Sequence[str] = [e for n in search.space.names if (e := search.failure(n))]
        raise RunError(f"every run failed; the first: {errors[0] if errors else 'no run'}")
    best, trial = max(curves, key=lambda pair: pair[0])
    rate = f" with learning rate {trial.rate:g}" if problem.rate is not None else ""
    longer = "more steps of the script" if problem.is_script else "a longer stop"
    if missing := sum(not known.trials for known in search.known.values()):
        longer += f", or more time: {missing} candidates were not tried"
    raise RunError(
        f"no run reached {in_words(target, target.level)} within {outcome.horizon_s:.6g} s of "
        f"virtual time; the best reached {in_words(target, best)}, {trial.candidate}{rate}: choose "
        f"another target, or {longer}"
    )
