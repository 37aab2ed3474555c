"""How long trials may take, and what is said if none of them reached the target."""

from __future__ import annotations

import math
from typing import Final

from outpace.errors import RunError
from outpace.experiment.advising.judging.found import Found
from outpace.experiment.advising.question.curves import Curve
from outpace.experiment.advising.question.problem import Problem
from outpace.support.estimates import TimeTo

LONGEST: Final = 3.0  # horizon of a run, in times of BSP


def horizon_of(problem: Problem, pilot: Curve, reached: TimeTo) -> float:
    """Return the virtual time at which trials end that have not reached the target.

    Args:
        pilot: a run of BSP.
        reached: when it reached the target.

    Raises:
        RunError: if the run failed, and the configuration has no limit.
    """
    stop = problem.data.get("stop") or {}
    if (limit_s := stop.get("virtual_time_s")) is not None:
        return float(limit_s)
    if pilot.ended == "failed":
        raise RunError(
            f"BSP failed with the configured learning rate: {pilot.error}; configure one with "
            "which it runs, or give stop.virtual_time_s"
        )
    if not reached.reached:
        return pilot.end_s
    done, iterations = pilot.totals.get("iterations", 0.0), stop.get("iterations")
    if iterations and done:
        return max(pilot.end_s, pilot.end_s * float(iterations) / done)
    return LONGEST * reached.time_s


def period_s(best: Curve | None, level: float, points: int, most_s: float = math.inf) -> float:
    """Return the virtual time from one evaluation to the next.

    Args:
        best: the fastest trial so far.
        level: score of the target.
        points: evaluations until that trial's time to the target.
        most_s: at most this.
    """
    fastest_s = math.inf if best is None else (best.crossing_s(level) or math.inf)
    return rounded(max(1e-6, min(most_s, fastest_s / points)))


def rounded(value: float) -> float:
    """Return the value with two significant digits."""
    return float(f"{value:.2g}")


def require_reached(found: Found, problem: Problem) -> None:
    """Raise RunError, with the best that was reached, unless a trial reached the target."""
    search, goal = found.search, problem.goal
    if search.best_curve is not None:
        return
    curves = [
        (curve.best, trial)
        for known in search.known.values()
        for trial, curve in known.trials.items()
        if curve.times_s
    ]
    if not curves:
        errors = [e for name in search.space.names if (e := search.failure(name))]
        raise RunError(f"every run failed; the first: {errors[0] if errors else 'no run'}")
    best, trial = max(curves, key=lambda pair: pair[0])
    rate = f" with learning rate {trial.rate:g}" if problem.rate is not None else ""
    longer = "more steps of the script" if problem.is_script else "a longer stop"
    if missing := sum(not known.trials for known in search.known.values()):
        longer += f", or more time: {missing} candidates were not tried"
    raise RunError(
        f"no run reached {goal.in_words} within {found.horizon_s:.6g} s of virtual time; the "
        f"best reached {goal.words(best)}, {trial.candidate}{rate}: choose another target, or "
        f"{longer}"
    )
