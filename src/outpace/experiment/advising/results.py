"""The advice that follows from a study, as plain data: the content of advice.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from outpace.experiment.advising.judging.found import Found, provisional
from outpace.experiment.advising.judging.known import PredictionError, recorded_busy
from outpace.experiment.advising.judging.leaving import after_target
from outpace.experiment.advising.judging.likely import likely
from outpace.experiment.advising.judging.promise import mean_gap_s, one_pair, one_run
from outpace.experiment.advising.judging.statistics import (
    Choice,
    chosen,
    probability_of_best,
    speedup,
)
from outpace.experiment.advising.question.candidates import ALL_REDUCE, BSP
from outpace.experiment.advising.question.curves import Curve
from outpace.experiment.advising.question.problem import PERIODS, Problem
from outpace.experiment.advising.searching.search import Search
from outpace.experiment.advising.study import WHOLE
from outpace.support.estimates import NOTHING, Estimate, TimeTo, mean_of, mean_time
from outpace.support.version import __version__

_KINDS: Final = ("compute", "communicate", "wait")


def advice_of(
    problem: Problem,
    found: Found,
    *,
    error: PredictionError | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Return the advice as plain data.

    Args:
        error: of what is predicted, by the calibration; None: unknown.
        command: the command that runs the recommendation.
    """
    search, level = found.search, problem.goal.level
    times = found.times(level)
    error = error or PredictionError()
    choice = _choice(times, error.of_speedup)
    name = choice.name
    rate = search.best_rate(name)
    tuned = problem.rate is not None
    others = [each for each in times if each != name]
    to_all_reduce = (
        speedup(times[name], times[ALL_REDUCE], max(1, len(others)), error.of_speedup)
        if ALL_REDUCE in times and name != ALL_REDUCE
        else NOTHING
    )
    if name == ALL_REDUCE:
        to_all_reduce = Estimate(1.0, 1.0, 1.0)
    probability = probability_of_best(times) if times else {}
    own = found.crossings(name, level)
    sync = dict(problem.candidate(name).sync)
    leader = likely(problem, found, times, choice)
    told = dict.fromkeys((BSP, ALL_REDUCE, name, name if leader is None else leader["name"]))
    return {
        "outpace": __version__,
        "status": found.ended,
        "target": {k: v for k, v in asdict(problem.goal).items() if v is not None},
        "configuration": problem.source.name,
        "workers": problem.workers,
        "strategy": sync["kind"],
        "name": name,
        "recommendation": problem.recommendation(name, rate, found.every_s),
        "learning_rate": rate if tuned else None,
        "command": command,
        "speedup_over_bsp": asdict(choice.speedup),
        "speedup_over_all_reduce": asdict(to_all_reduce),
        "distinguishable": choice.distinguishable,
        "best": choice.best,
        "likely": leader,
        "untuned": tuned and all(len(search.known[n].rates) < 2 for n in search.space.others),
        "not_tried": sum(not known.trials for known in search.known.values()),
        "more_s": None if found.ended == "complete" else found.more_s,
        "ahead": provisional(search) if search.best_curve is not None else "",
        "probability_best": probability,
        "seeds": list(found.seeds),
        "candidates": [
            _candidate(problem, found, each.name, times, choice, tuned)
            for each in problem.candidates
        ],
        "left_out": dict(problem.left_out),
        "one_run": {
            **asdict(one_run(own, error.of_time.get(name))),
            "no_error": error.reason,
            "speedup_over_bsp": asdict(
                one_pair(own if name != BSP else [], found.crossings(BSP, level), error.of_speedup)
            ),
            "evaluated_every_s": mean_gap_s(own),
        },
        "recorded_busy": recorded_busy(problem),
        "time_goes": {each: _shares(found.fresh[each]) for each in told if each in times},
        "front": {"time_s": found.whole_s, "points": _front(found, times, level)},
        "sensitivity": [
            {
                "change": scenario.name,
                "reason": scenario.reason,
                **(_scenario(changed) if changed else {}),
            }
            for scenario, changed in found.changed
        ],
        "evaluated_every_s": found.every_s,
        "searched_every_s": found.searched_every_s,
        "evaluate_replaced": not problem.is_script
        and any((problem.data.get("evaluate") or {}).get(key) for key in PERIODS),
        "effort": {
            "trials": sum(len(known.trials) for known in search.known.values()),
            "one_run_s": round(found.one_run_s, 3),
            "elapsed_s": round(found.elapsed_s, 3),
            "processor_s": round(found.cost_s, 3),
            "processor_s_of_finalists": round(found.cost_of_finalists_s, 3),
            "finalists": [each for each in times if each not in search.space.references],
        },
    }


def _choice(times: Mapping[str, Sequence[TimeTo]], error: float | None) -> Choice:
    """Return what the fresh seeds say; BSP, of which nothing is known, with fewer than two.

    error: of predicted factors over BSP; that of the first strategy stands for all.
    """
    if BSP not in times or len(times[BSP]) < 2:
        return Choice(BSP, NOTHING, False, BSP, {})
    return chosen(times, BSP, error)


def _candidate(
    problem: Problem,
    found: Found,
    name: str,
    times: Mapping[str, Sequence[TimeTo]],
    choice: Choice,
    tuned: bool,
) -> dict[str, Any]:
    """Return what is known of a candidate: on fresh seeds if it was run on them."""
    search, each = found.search, problem.candidate(name)
    is_fresh = name in times
    rate = search.best_rate(name)
    curves = found.fresh[name] if is_fresh else search.known[name].of_rate(rate)
    own = times[name] if is_fresh else _searched(search, curves, found.horizon_s)
    errors = [curve.error for curve in curves if curve.error]
    missed = sum(not time.reached for time in own)
    return {
        "name": name,
        "family": each.family,
        "sync": {**each.sync},
        **({"beside": dict(each.beside)} if each.beside else {}),
        "reached": bool(own) and missed == 0,
        "time_to_target_s": asdict(mean_time(own) if own else NOTHING),
        "learning_rate": rate if tuned and search.known[name].trials else None,
        "lowered_from": search.lowered.get(name),
        "fresh": is_fresh,
        "runs": len(own),
        "missed": missed,
        "trials": len(search.known[name].trials),
        "speedup_over_bsp": asdict(choice.speedups.get(name, NOTHING)),
        "after_target": after_target(curves if is_fresh else (), problem.goal),
        "error": errors[0] if errors else None,
    }


def _searched(search: Search, curves: Sequence[Curve], horizon_s: float) -> list[TimeTo]:
    """Return times of the search; a run that was stopped has a lower bound."""
    found = [curve.time_to(search.space.goal.level) for curve in curves]
    return [each if each.time_s > 0 else TimeTo(horizon_s, False) for each in found]


def _shares(curves: Sequence[Curve]) -> dict[str, float]:
    """Return the shares of a worker's time by what it did, and its waits in seconds per run."""
    sums = {kind: sum(curve.totals.get(kind, 0.0) for curve in curves) for kind in _KINDS}
    whole = math.fsum(sums.values())
    if whole <= 0:
        return {}
    return {kind: value / whole for kind, value in sums.items()}


def _front(
    found: Found, times: Mapping[str, Sequence[TimeTo]], level: float
) -> list[dict[str, Any]]:
    """Return time to the target and final score of each strategy on the fresh seeds."""
    goal = found.search.space.goal
    points: list[dict[str, Any]] = []
    if not found.whole_s:  # no run continued after the target
        return points
    for name, curves in found.fresh.items():
        finals = [c.last for c in curves[:WHOLE] if math.isfinite(c.last)]
        sign = 1 if goal.accuracy is not None else -1
        points.append(
            {
                "name": name,
                "time_s": asdict(mean_time(times[name])),
                "final": asdict(mean_of([sign * value for value in finals])),
            }
        )
    return points


def _scenario(times: Mapping[str, Sequence[TimeTo]]) -> dict[str, Any]:
    """Return which strategy is first on a changed cluster, and the factors over BSP."""
    factors = {
        name: speedup(own, times[BSP], len(times) - 1) for name, own in times.items() if name != BSP
    }
    usable = [n for n, f in factors.items() if f.mean is not None and f.low is not None]
    best = max(usable, key=lambda n: factors[n].mean or 0.0, default=BSP)
    if (factors[best].mean or 0.0) <= 1 if best != BSP else False:
        best = BSP
    return {
        "best": best,
        "time_to_target_s": {name: asdict(mean_time(own)) for name, own in times.items()},
        "speedup_over_bsp": {name: asdict(each) for name, each in factors.items()},
        "seeds": len(times[BSP]),
    }
