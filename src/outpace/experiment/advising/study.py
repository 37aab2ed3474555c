"""One study: a pilot, the search, and fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from outpace.errors import RunError
from outpace.experiment.advising.candidates import BSP
from outpace.experiment.advising.curves import SEARCH, Curve, Trial, in_words
from outpace.experiment.advising.findings import LONGEST, Findings
from outpace.experiment.advising.phases import PHASES, planned
from outpace.experiment.advising.problem import Problem
from outpace.experiment.advising.runner import Budget, carry_out
from outpace.experiment.trials import Pool
from outpace.report.words import plural

_POINTS: Final = 20  # least number of evaluations of BSP until the target
_PATIENCE: Final = 0.1  # share of BSP's iteration that a partial push waits after its quorum


class Study:
    """Carries out a study.

    Attributes:
        found: the results so far; None until the pilot has ended.
        budget: time limit of the study, which starts now.

    Args:
        seeds: number of fresh seeds.
        budget: time that the study may take, from now on.
        say: called with provisional answers.
    """

    def __init__(
        self,
        problem: Problem,
        pool: Pool,
        *,
        seeds: int,
        budget: Budget,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._problem, self._pool, self._say = problem, pool, say
        self._seeds = tuple(problem.seed + place for place in range(seeds))
        self.budget = budget
        self.found: Findings | None = None

    def run(self) -> Findings:
        """Carry the study out.

        Raises:
            RunError: if the budget is too small for one run, or no run reached the target.
            KeyboardInterrupt: `found` has the results until then.
        """
        found, budget = self._pilot(), self.budget
        budget.planned += planned(found)
        self._say(
            f"{plural(len(found.names), 'candidate')}; one run of BSP takes {budget.one_run_s:.3g} "
            f"s here, and about {budget.planned} runs are planned"
        )
        said = ""
        for phase, rounds in PHASES:
            budget.begin(phase)
            for trials in rounds(found, budget):
                self._carry_out(found, trials)
                first = next(iter(found.ranked(found.left)), "")
                if phase == SEARCH and found.best_s() is not None and first != said:
                    said = first
                    self._say(f"after {budget.elapsed_s:.0f} s: {said} is ahead in the search")
                if budget.over:
                    break
            _require_reached(found)
        return found

    def _carry_out(self, found: Findings, trials: Sequence[Trial]) -> None:
        """Run the trials that have not been run yet."""
        new = [trial for trial in trials if trial not in found.of(trial.part, trial.candidate)]
        for trial, curve in carry_out(new, found.problem, self._pool, self.budget):
            found.note(trial, curve)

    def _pilot(self) -> Findings:
        """Run BSP as configured, which shows how long runs take."""
        problem = self._problem
        level, stop = problem.target.level, problem.data.get("stop") or {}
        seed = Findings(problem, self._seeds, math.inf).search_seeds[0]
        trial = Trial(SEARCH, BSP, problem.rate or 1.0, seed)
        curve = next((c for _, c in carry_out([trial], problem, self._pool, self.budget)), None)
        if curve is None:
            raise RunError(
                f"the budget of {self.budget.whole_s:g} s is too small for one run of BSP, which "
                f"takes more than {self.budget.elapsed_s:.3g} s here: give more time with "
                "--budget, or a target that is reached sooner"
            )
        horizon_s = _horizon_s(curve, level, stop)
        if (done := curve.totals.get("iterations", 0.0)) and curve.end_s:
            patience_s = float(f"{_PATIENCE * curve.end_s / done:.2g}")
            problem = problem.with_patience(patience_s)
        most_s = (curve.crossing_s(level) or horizon_s / 2) / _POINTS
        self.found = Findings(
            problem, self._seeds, horizon_s, None if problem.is_script else most_s
        )
        if problem.is_script:  # a script evaluates itself, so the pilot is like all other trials
            self.found.note(trial, curve)
        return self.found


def _horizon_s(pilot: Curve, level: float, stop: dict[str, float]) -> float:
    """Return the virtual time at which a trial ends if it has not reached the target.

    Raises:
        RunError: if the pilot, a run of BSP, failed, and the configuration has no limit.
    """
    if (limit_s := stop.get("virtual_time_s")) is not None:
        return float(limit_s)
    if pilot.error is not None:
        raise RunError(
            f"BSP failed with the configured learning rate: {pilot.error}; configure a learning "
            "rate with which it runs, or give stop.virtual_time_s"
        )
    at = pilot.crossing_s(level)
    return pilot.end_s if at is None else LONGEST * at


def _require_reached(found: Findings) -> None:
    """Raise RunError, with the best score, unless a trial reached the target."""
    if found.best_s() is not None:
        return
    target, trials = found.problem.target, found.trials
    curves = {trial: curve for trial, curve in trials.items() if curve.times_s}
    if not curves:
        error = next((curve.error for curve in trials.values() if curve.error), "no run")
        raise RunError(f"every run failed; the first: {error}")
    best = max(curves, key=lambda trial: curves[trial].best)
    rate = "" if found.problem.rate is None else f" with learning rate {best.rate:g}"
    longer = "more steps of the script" if found.problem.is_script else "a longer stop"
    raise RunError(
        f"no run reached {in_words(target, target.level)} within {found.horizon_s:.6g} s of "
        f"virtual time; the best reached {in_words(target, curves[best].best)}, {best.candidate}"
        f"{rate}: choose another target, or {longer}, or more time"
    )
