"""The advice that follows from a study."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

from outpace.config.cluster_files import INCLUDE
from outpace.errors import ConfigError
from outpace.experiment.advising.candidates import ALL_REDUCE, BSP
from outpace.experiment.advising.curves import Curve
from outpace.experiment.advising.outcome import Outcome
from outpace.experiment.advising.problem import PERIODS, Problem
from outpace.experiment.advising.promise import mean_gap_s, one_pair, one_run
from outpace.experiment.advising.statistics import (
    MIN_GAIN,
    Choice,
    chosen,
    probability_of_best,
    speedup,
)
from outpace.experiment.advising.study import WHOLE
from outpace.report.advice.result import (
    AdviceResult,
    AfterTarget,
    CandidateResult,
    ChangedCluster,
    Effort,
    OneRun,
)
from outpace.report.explaining import Cause, explained
from outpace.support.estimates import NOTHING, Estimate, TimeTo, mean_of, mean_time
from outpace.support.targets import Target
from outpace.support.version import __version__

_PHASES: Final = ("compute", "communicate", "wait")
_LEFT: Final = 1.1  # times the loss of the target, or the share of errors that it allows
_MOST_CAUSES: Final = 3
_LEAST_SHARE: Final = 0.01  # of a run: causes that cost less are not named
_LEAST_S: Final = 0.1  # and, with the times of real machines, those that cost fewer seconds
_SHORT_RUN_S: Final = 5.0  # the start of a real run, which no simulation has, takes seconds
_SHORT_STEP_S: Final = 0.01  # other work of a machine delays a step by milliseconds


def advice_of(
    problem: Problem, found: Outcome, min_gain: float = MIN_GAIN, command: str = ""
) -> AdviceResult:
    """Return the advice.

    Args:
        min_gain: see `statistics.chosen`.
        command: the command that runs the recommendation.
    """
    search, times, error = found.search, found.times, found.error
    choice = _choice(times, error.of_speedup, min_gain)
    name, tuned = choice.name, problem.rate is not None
    rate = search.best_rate(name)
    own, bsp, level = found.fresh.get(name, []), found.fresh.get(BSP, []), found.level
    promise = one_run(own, level, error.of_time.get(name))
    leader = found.leader
    shown = dict.fromkeys((BSP, ALL_REDUCE, name, *([leader.name] if leader else [])))
    named = dict.fromkeys((BSP, name))
    return AdviceResult(
        outpace=__version__,
        status=found.ended,
        target=problem.target,
        configuration=problem.source.name,
        workers=problem.workers,
        strategy=problem.candidate(name).sync["kind"],
        name=name,
        recommendation=problem.recommendation(name, rate, found.every_s),
        candidates=tuple(
            _candidate(problem, found, each.name, times, choice) for each in problem.candidates
        ),
        effort=Effort(
            sum(len(known.trials) for known in search.known.values()),
            round(found.one_run_s, 3),
            round(found.elapsed_s, 3),
            round(found.cost_s, 3),
        ),
        command=command,
        learning_rate=rate if tuned else None,
        speedup_over_bsp=choice.speedup,
        speedup_over_all_reduce=_over_all_reduce(times, name, error.of_speedup),
        distinguishable=choice.distinguishable,
        min_gain=min_gain,
        best=choice.best,
        ahead=leader if found.ended != "complete" and not choice.distinguishable else None,
        not_tried=sum(not known.trials for known in search.known.values()),
        more_s=None if found.ended == "complete" else found.more_s,
        probability_best=probability_of_best(times),
        seeds=found.seeds,
        left_out=problem.left_out,
        one_run=OneRun(
            promise.seeds,
            promise.prediction,
            promise.both,
            promise.error,
            error.reason,
            one_pair(own if name != BSP else [], bsp, level, error.of_speedup),
            mean_gap_s(own, level),
        ),
        first_log=sum(
            bool(curve.times_s) and curve.first_s(level) == curve.times_s[0]
            for each in named
            for curve in found.fresh.get(each, ())
        ),
        short=_short(problem, found),
        notes=tuple(problem.cluster_notes()),
        time_goes={each: _shares(found.fresh[each]) for each in shown if each in times},
        whole_s=found.whole_s,
        sensitivity=tuple(
            ChangedCluster(scenario.name, scenario.reason, *_first(changed))
            for scenario, changed in found.changed
        ),
        evaluated_every_s=found.every_s,
        evaluate_replaced=not problem.is_script
        and any((problem.data.get("evaluate") or {}).get(key) for key in PERIODS),
        causes=_causes(problem, found),
    )


def after_target(curves: Sequence[Curve], target: Target) -> AfterTarget:
    """Return how many runs continued after the target, and how many of them left it again.

    A run has left it if its last evaluation is worse by more than a tenth: of the loss, or of the
    share of errors. Runs that ended at the target do not count.
    """
    level = target.level
    continued = [
        curve.last
        for curve in curves
        if (at := curve.first_s(level)) is not None and curve.end_s > at
    ]
    if target.accuracy is not None:
        bound = min(1 - _LEFT * (1 - target.accuracy), target.accuracy)
    else:
        bound = min(_LEFT * level, level)  # a negative loss has no share: any loss above it counts
    left = [score for score in continued if score < bound]
    return AfterTarget(len(continued), len(left), abs(min(left)) if left else None)


def _choice(times: Mapping[str, Sequence[TimeTo]], error: float | None, min_gain: float) -> Choice:
    """Return what the fresh seeds say; BSP, of which nothing is known, with fewer than two.

    error: of predicted factors over BSP; that of the first strategy stands for all.
    """
    if BSP not in times or len(times[BSP]) < 2:
        return Choice(BSP, NOTHING, False, BSP, {})
    return chosen(times, BSP, error, min_gain)


def _over_all_reduce(
    times: Mapping[str, Sequence[TimeTo]], name: str, error: float | None
) -> Estimate:
    if name == ALL_REDUCE:
        return Estimate(1.0, 1.0, 1.0)
    if name not in times or ALL_REDUCE not in times:
        return NOTHING
    return speedup(times[name], times[ALL_REDUCE], max(1, len(times) - 1), error)


def _candidate(
    problem: Problem,
    found: Outcome,
    name: str,
    times: Mapping[str, Sequence[TimeTo]],
    choice: Choice,
) -> CandidateResult:
    """Return what is known of a candidate: on fresh seeds if it was run on them."""
    search, candidate = found.search, problem.candidate(name)
    rate = search.best_rate(name)
    is_fresh = name in times
    curves = found.fresh[name] if is_fresh else search.known[name].of_rate(rate)
    if is_fresh:
        own = list(times[name])
    else:  # a run that was stopped has a lower bound
        ran = [curve.time_to(found.level) for curve in curves]
        own = [each if each.time_s > 0 else TimeTo(found.horizon_s, False) for each in ran]
    missed = sum(not each.reached for each in own)
    after = after_target(curves if is_fresh else (), problem.target)
    if is_fresh and found.whole_s:
        sign = 1 if problem.target.accuracy is not None else -1
        finals = [sign * curve.last for curve in curves[:WHOLE] if math.isfinite(curve.last)]
        after = dataclasses.replace(after, final=mean_of(finals))
    tried = bool(search.known[name].trials)
    return CandidateResult(
        name=name,
        family=candidate.family,
        sync=dict(candidate.sync),
        reached=bool(own) and missed == 0,
        time_to_target_s=mean_time(own) if own else NOTHING,
        learning_rate=rate if problem.rate is not None and tried else None,
        fresh=is_fresh,
        runs=len(own),
        missed=missed,
        trials=len(search.known[name].trials),
        beside=dict(candidate.beside),
        lowered_from=search.lowered.get(name),
        speedup_over_bsp=choice.speedups.get(name, NOTHING),
        after_target=after,
        error=next((curve.error for curve in curves if curve.error), None),
    )


def _short(problem: Problem, found: Outcome) -> tuple[float, float] | None:
    """Return the seconds of a run and of a step of BSP if they are too short to judge by.

    Only where the times are those of real machines: a law that the user makes up is exact.
    """
    curves = found.fresh.get(BSP)
    if not curves or not problem.data.get(INCLUDE):
        return None
    run_s = math.fsum(each.time_s for each in found.times[BSP]) / len(curves)
    steps = math.fsum(curve.totals.get("iterations", 0.0) for curve in curves)
    step_s = math.fsum(curve.end_s for curve in curves) / max(1.0, steps)
    return None if run_s >= _SHORT_RUN_S and step_s >= _SHORT_STEP_S else (run_s, step_s)


def _shares(curves: Sequence[Curve]) -> dict[str, float]:
    """Return the shares of a worker's time by what it did."""
    sums = {phase: sum(curve.totals.get(phase, 0.0) for curve in curves) for phase in _PHASES}
    whole = math.fsum(sums.values())
    return {phase: value / whole for phase, value in sums.items()} if whole > 0 else {}


def _first(
    times: Mapping[str, Sequence[TimeTo]],
) -> tuple[str | None, Mapping[str, Estimate]]:
    """Return which strategy is first on a changed cluster, and the factors over BSP."""
    if not times:
        return None, {}
    choice = chosen(times, BSP)
    return choice.best, choice.speedups


def _causes(problem: Problem, found: Outcome) -> tuple[Cause, ...]:
    """Return what slows BSP, from its run on the first fresh seed."""
    if found.folder is None:
        return ()
    try:
        causes = explained(found.folder).causes[:_MOST_CAUSES]
    except ConfigError:
        return ()
    least_s = _LEAST_S if problem.data.get(INCLUDE) else 0.0
    return tuple(e for e in causes if e.share >= _LEAST_SHARE and e.lost_s >= least_s)
