"""The results of a study, as far as it has come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outpace.experiment.advising.judging.promise import Crossing
from outpace.experiment.advising.question.candidates import BSP
from outpace.experiment.advising.question.curves import Curve, Trial
from outpace.experiment.advising.question.scenarios import Scenario
from outpace.experiment.advising.searching.search import Search
from outpace.support.estimates import TimeTo


@dataclass(slots=True)
class Found:
    """The results of a study, as far as it has come.

    Attributes:
        fresh: curves of the finalists and the references on the fresh seeds that all of them have.
        changed: scenarios with the times of their strategies, or without them and the reason.
        searched_every_s: the longest time between evaluations in the search; None: as configured.
        ended: `complete`; `budget` if its time was over before; or `interrupted`.
        one_run_s: real time of the first run of BSP.
        more_s: estimate of the time that the search and the fresh seeds would still need.
        folder: of BSP's run on the first fresh seed, if it was written.
    """

    search: Search
    horizon_s: float
    fresh: dict[str, list[Curve]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    horizon_fresh_s: float = math.inf
    every_s: float | None = None
    searched_every_s: float | None = None
    whole_s: float = 0.0
    changed: list[tuple[Scenario, dict[str, list[TimeTo]]]] = field(default_factory=list)
    ended: str = "budget"
    one_run_s: float = 0.0
    more_s: float = 0.0
    cost_s: float = 0.0
    cost_of_finalists_s: float = 0.0
    elapsed_s: float = 0.0
    folder: Path | None = None

    def times(self, level: float) -> dict[str, list[TimeTo]]:
        """Return the times to the target on the fresh seeds."""
        return {
            name: [time_to(curve, level, self.horizon_fresh_s) for curve in curves]
            for name, curves in self.fresh.items()
        }

    def crossings(self, name: str, level: float) -> list[Crossing]:
        """Return when a strategy's runs on the fresh seeds reached the target; [] without any."""
        return [Crossing.of(curve, level) for curve in self.fresh.get(name, ())]

    def keep(
        self, names: Sequence[str], trials: Sequence[Trial], curves: Mapping[Trial, Curve]
    ) -> None:
        """Keep the runs on those fresh seeds on which all of these strategies were run.

        Args:
            trials: those that were planned.
            curves: of those that have ended.
        """
        seeds = {trial.seed for trial in trials}
        ran = {s for s in seeds if all(t in curves for t in trials if t.seed == s)}
        self.seeds = tuple(sorted(ran))
        if ran:
            self.fresh = {
                name: [curves[t] for t in trials if t.candidate == name and t.seed in ran]
                for name in names
            }
        finalists = [name for name in names if name not in self.search.space.references]
        self.cost_of_finalists_s = self.search.cost_s(finalists) + sum(
            curve.cost_s for trial, curve in curves.items() if trial.candidate in finalists
        )


def provisional(search: Search) -> str:
    """Return the answer of the search so far, without an interval."""
    name = search.ranked()[0]
    rate = search.best_rate(name)
    own, bsp = search.log_time(name, rate), search.log_time(BSP, search.best_rate(BSP))
    with_rate = "" if search.space.rate is None else f" with learning rate {rate:g}"
    if name == BSP or not math.isfinite(bsp):
        return f"{name}{with_rate} is ahead"
    return f"{name}{with_rate} is ahead, about {math.exp(bsp - own):.2f} times as fast as BSP"


def time_to(curve: Curve, level: float, horizon_s: float) -> TimeTo:
    """Return the time to the target; a run that failed has missed it at its horizon."""
    found = curve.time_to(level)
    if found.reached or (curve.ended != "failed" and found.time_s > 0):
        return found
    return TimeTo(horizon_s, False)
