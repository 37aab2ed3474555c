"""Makes the advice from the results of a study."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

from outpace.config.cluster_files import INCLUDE
from outpace.experiment.advising.candidates import ALL_REDUCE, BSP
from outpace.experiment.advising.curves import SEARCH, Curve
from outpace.experiment.advising.findings import Findings
from outpace.experiment.advising.statistics import MIN_GAIN, Choice, chosen, promised
from outpace.report.advice.result import AdviceResult, CandidateResult, OneRun
from outpace.support.estimates import NOTHING, Estimate, TimeTo, mean_time
from outpace.support.version import __version__

_PHASES: Final = ("compute", "communicate", "wait")
_SHORT_RUN_S: Final = 5.0  # seconds; a real run needs some seconds to start, which is not simulated
_SHORT_STEP_S: Final = 0.01  # seconds; other work of a machine delays a step by milliseconds


def advice_of(found: Findings, min_gain: float = MIN_GAIN) -> AdviceResult:
    """Return the advice of a complete study.

    Args:
        min_gain: see `statistics.chosen`.
    """
    problem, level = found.problem, found.level
    fresh, times = found.on_fresh_seeds(), found.times()
    ahead = next(iter(found.ranked(found.left)), BSP)
    best_speedup = Estimate(math.exp(found.gain(ahead)))
    choice = Choice(BSP, ahead, {BSP: NOTHING})
    seeds = tuple(trial.seed for trial in fresh.get(BSP, ()))
    if seeds:
        choice = chosen(times, BSP, min_gain)
        best_speedup = choice.speedups[choice.best]
    if len(seeds) < 2:
        choice = dataclasses.replace(choice, name=BSP)
    over_all_reduce = NOTHING
    if ALL_REDUCE in times and len(seeds) > 1:
        over_all_reduce = chosen(times, ALL_REDUCE).speedups[choice.name]
    name, rate = choice.name, found.used_rate(choice.name)
    own, bsp = ([*fresh.get(each, {}).values()] for each in (name, BSP))
    pair = promised(bsp, own, level) if name != BSP else NOTHING
    gap_s = math.fsum(c.gap_s(level) for c in own) / len(own) if own else None
    named = {BSP: bsp, name: own}
    every_s = next((trial.every_s for trial in fresh.get(BSP, ())), None)
    return AdviceResult(
        outpace=__version__,
        status="complete",
        target=problem.target,
        configuration=problem.source.name,
        workers=problem.workers,
        strategy=problem.candidate(name).sync["kind"],
        name=name,
        recommendation=problem.recommendation(name, rate, every_s),
        candidates=tuple(
            _candidate(found, each.name, times, choice) for each in problem.candidates
        ),
        learning_rate=rate if problem.rate is not None else None,
        speedup_over_bsp=choice.speedups[name] if len(seeds) > 1 else NOTHING,
        speedup_over_all_reduce=over_all_reduce,
        distinguishable=name != BSP,
        min_gain=min_gain,
        best=choice.best,
        best_speedup=best_speedup,
        seeds=seeds,
        left_out=problem.left_out,
        one_run=OneRun(promised(own, (), level), pair, gap_s),
        at_edge=tuple(each for each in named if _at_edge(found, each)),
        first_log=sum(curve.shows_at_once(level) for curves in named.values() for curve in curves),
        short=_short(found, bsp),
        notes=tuple(problem.cluster_notes()),
        time_goes={each: _shares(curves) for each, curves in named.items() if curves},
        evaluated_every_s=every_s,
        trials=len(found.trials),
    )


def _candidate(
    found: Findings, name: str, times: Mapping[str, Sequence[TimeTo]], choice: Choice
) -> CandidateResult:
    """Return the results of a candidate, on fresh seeds if it was run on them."""
    candidate, rate = found.problem.candidate(name), found.used_rate(name)
    runs = found.on_fresh_seeds().get(name) or {
        trial: curve for trial, curve in found.of(SEARCH, name).items() if trial.rate == rate
    }
    own = [curve.time_to(found.level, trial.limit_s) for trial, curve in runs.items()]
    missed = sum(not each.reached for each in own)
    best = found.rates(name)[0]
    return CandidateResult(
        name=name,
        sync=dict(candidate.sync),
        reached=bool(own) and missed == 0,
        time_to_target_s=mean_time(own) if own else NOTHING,
        learning_rate=rate if own and found.problem.rate is not None else None,
        fresh=name in times,
        runs=len(own),
        missed=missed,
        lowered_from=best if rate != best else None,
        speedup_over_bsp=choice.speedups.get(name, NOTHING),
        error=next((curve.error for curve in runs.values() if curve.error), None),
    )


def _at_edge(found: Findings, name: str) -> bool:
    """Return True if the best learning rate is the highest or the lowest of the search."""
    grid = found.grid
    return len(grid) > 1 and found.rates(name)[0] in (min(grid), max(grid))


def _short(found: Findings, bsp: Sequence[Curve]) -> tuple[float, float] | None:
    """Return the seconds of a run and of a step of BSP if they are too short to judge.

    Only if the times are from real machines, because an invented law is exact.
    """
    if not bsp or not found.problem.data.get(INCLUDE):
        return None
    steps = math.fsum(curve.totals.get("iterations", 0.0) for curve in bsp)
    whole_s = math.fsum(curve.end_s for curve in bsp)
    run_s, step_s = whole_s / len(bsp), whole_s / max(1.0, steps)
    return None if run_s >= _SHORT_RUN_S and step_s >= _SHORT_STEP_S else (run_s, step_s)


def _shares(curves: Sequence[Curve]) -> dict[str, float]:
    """Return the shares of a worker's time by activity."""
    sums = {phase: sum(curve.totals.get(phase, 0.0) for curve in curves) for phase in _PHASES}
    whole = math.fsum(sums.values()) or 1.0
    return {phase: value / whole for phase, value in sums.items()}
