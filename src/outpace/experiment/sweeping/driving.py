"""Carries out a sweep: begins candidates, watches their runs, and ends those that cannot win.

A candidate is run with its first seed; if it is not ended early, with the others. It is ended
early for one of two reasons:

- too slow: the mean of its times over the seeds is already larger than the best candidate's mean
  time to the target. It cannot win on these seeds, so this loses nothing.
- pruned: its first run is worse than three quarters of the complete candidates were at the same
  virtual time (Optuna's PercentilePruner). This is a guess from the course so far.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.sweeping.candidate import (
    Candidate,
    SeedRun,
    Status,
    completed,
    curve_of,
    seed_run,
)
from outpace.experiment.sweeping.objective import Objective
from outpace.experiment.sweeping.space import in_words
from outpace.experiment.sweeping.study import Study
from outpace.experiment.trials import Ended, Order, Point, Pool

if TYPE_CHECKING:
    from optuna import Trial

STEPS: Final = 32  # reports of a run that takes as long as the configuration allows
_REPEATED: Final = 50  # proposals one after the other that are known already


@dataclass(eq=False, slots=True)
class _Seed:
    """A run. points: until it reached the target; known: those whose quantity is finite."""

    points: list[Point] = field(default_factory=list)
    known: list[Point] = field(default_factory=list)
    reached: bool = False
    ended: Ended | None = None


@dataclass(eq=False, slots=True)
class _UnderWay:
    """A candidate with runs that have not ended. settled: it was ended early, and is told."""

    trial: Trial
    values: dict[str, Any]
    experiment: Experiment
    seeds: dict[int, _Seed]
    step: int = 1  # the next one to report
    settled: bool = False

    @property
    def number(self) -> int:
        return self.trial.number


class Drive:
    """Carries out one sweep; see the head of this file.

    Args:
        make: returns the experiment of values by key; raises ConfigError if there is none.
        seeds: of each candidate's runs.
        most: candidates in all, with those of earlier sessions; None: until the budget is spent,
            or all combinations are tried.
        budget_s: seconds after which no candidate goes on.
        processes: see `Pool`.
        on_end: called with each candidate that has ended.
        on_warning: called with a warning about a run.
    """

    def __init__(
        self,
        study: Study,
        objective: Objective,
        make: Callable[[dict[str, Any]], Experiment],
        *,
        seeds: Sequence[int],
        most: int | None,
        budget_s: float | None,
        processes: int | None,
        on_end: Callable[[Candidate], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self._study, self._objective, self._make = study, objective, make
        self._seeds, self._most, self._budget_s = list(seeds), most, budget_s
        self._deadline_s = math.inf
        self._on_end = on_end
        self._pool = Pool(processes, warning=lambda _, text: on_warning(text))
        self._under_way: dict[int, _UnderWay] = {}
        self._repeated = 0
        self._nothing_new = False
        self.ended: list[Candidate] = list(study.ended)
        self._known = {in_words(each.values): each for each in self.ended}
        self._best = best_of(self.ended, objective)
        self.spent = False  # the budget
        self.cpu_s = 0.0  # of the runs that have ended

    def run(self) -> None:
        """Carry the sweep out. After Ctrl-C all candidates have ended, as `interrupted`."""
        if self._budget_s is not None:
            self._deadline_s = time.monotonic() + self._budget_s
        try:
            with self._pool:
                while True:
                    self._begin()
                    left_s = self._deadline_s - time.monotonic()
                    if left_s <= 0 or not self._under_way:
                        break
                    for event in self._pool.wait(left_s if left_s < math.inf else None):
                        self._take(event)
            done = self._nothing_new or (self._most is not None and len(self.ended) >= self._most)
            self.spent = left_s <= 0 and not done
        finally:
            for each in list(self._under_way.values()):
                if not each.settled:
                    self._settle(each, "interrupted")

    def _begin(self) -> None:
        """Begin candidates as long as there is room for their runs."""
        while self._pool.room and not self._nothing_new and self._wanted():
            trial, values = self._study.ask()
            if (same := self._known.get(in_words(values))) is not None:
                self._study.tell_again(trial, same)
                self._repeated += 1
                self._nothing_new = self._repeated >= _REPEATED
                continue
            self._repeated = 0
            try:
                experiment = self._make(values)
            except ConfigError as error:
                self._end(trial, Candidate(trial.number, values, "invalid", error=str(error)))
                continue
            self._under_way[trial.number] = _UnderWay(trial, values, experiment, {})
            self._start(self._under_way[trial.number], self._seeds[:1])

    def _wanted(self) -> bool:
        """True if another candidate is to begin."""
        begun = len(self.ended) + sum(not each.settled for each in self._under_way.values())
        in_time = time.monotonic() < self._deadline_s
        return in_time and (self._most is None or begun < self._most)

    def _start(self, candidate: _UnderWay, seeds: Sequence[int]) -> None:
        for seed in seeds:
            candidate.seeds[seed] = _Seed()
            experiment = dataclasses.replace(candidate.experiment, seed=seed)
            name = f"candidate-{candidate.number}/seed-{seed}"
            self._pool.start(Order((candidate.number, seed), experiment, name=name))

    def _take(self, event: Point | Ended) -> None:
        assert isinstance(event.key, tuple)
        number, seed = event.key  # see `_start`
        candidate = self._under_way[number]
        run = candidate.seeds[seed]
        if isinstance(event, Ended):
            run.ended = event
            self.cpu_s += event.cpu_s
            if not candidate.settled:
                self._run_ended(candidate, event)
            if candidate.settled and all(each.ended for each in candidate.seeds.values()):
                del self._under_way[number]
            return
        if candidate.settled or run.reached:
            return  # it is about to end
        run.points.append(event)
        if _finite(self._objective.value_of(event)):
            run.known.append(event)
        if self._objective.reached(event):
            run.reached = True
            self._pool.stop(event.key, "it has reached the target")
        elif self._is_too_slow(candidate):
            self._settle(candidate, "too-slow")
        elif seed == self._seeds[0] and self._is_pruned(candidate):
            self._settle(candidate, "pruned")

    def _run_ended(self, candidate: _UnderWay, event: Ended) -> None:
        """Go on after a run has ended: with the other seeds, or with the end of the candidate."""
        if event.status == "failed":
            self._settle(candidate, "failed", event.error)
            return
        runs = self._runs(candidate)
        over = [run for run in runs if candidate.seeds[run.seed].ended is not None]
        missed = self._objective.kind == "time-to-target" and not all(run.reached for run in over)
        if missed or len(over) == len(self._seeds):
            found = completed(candidate.number, candidate.values, over, self._objective)
            self._finish(candidate, found)
        elif len(runs) == 1:
            self._start(candidate, self._seeds[1:])

    def _is_too_slow(self, candidate: _UnderWay) -> bool:
        best = self._best
        if self._objective.kind != "time-to-target" or best is None or best.value is None:
            return False
        last_s = [run.points[-1].time_s for run in candidate.seeds.values() if run.points]
        return math.fsum(last_s) > best.value * len(self._seeds)

    def _is_pruned(self, candidate: _UnderWay) -> bool:
        """Report the steps up to the last point; True if the candidate is to be pruned."""
        step_s, pruned = self._study.step_s, False
        run = candidate.seeds[self._seeds[0]]
        if step_s is None or not run.known:
            return False
        while run.points[-1].time_s >= candidate.step * step_s * (1 - 1e-9):
            at_s = candidate.step * step_s * (1 + 1e-9)
            last = next((each for each in reversed(run.known) if each.time_s <= at_s), None)
            value = None if last is None else self._objective.value_of(last)
            if value is not None:
                candidate.trial.report(self._objective.reported(value), candidate.step)
                pruned = pruned or candidate.trial.should_prune()
            candidate.step += 1
        return pruned

    def _runs(self, candidate: _UnderWay) -> list[SeedRun]:
        return [
            seed_run(seed, run.points, run.ended, self._objective)
            for seed, run in candidate.seeds.items()
        ]

    def _settle(self, candidate: _UnderWay, status: Status, error: str | None = None) -> None:
        """End a candidate before its runs have ended."""
        found = Candidate(candidate.number, candidate.values, status, error=error)
        self._finish(candidate, found)

    def _finish(self, candidate: _UnderWay, found: Candidate) -> None:
        candidate.settled = True
        for seed, run in candidate.seeds.items():
            if run.ended is None:
                self._pool.stop((candidate.number, seed), found.status)
        runs = self._runs(candidate)
        if found.status == "complete" and self._study.step_s is None and runs[0].time_s > 0:
            self._study.step_s = runs[0].time_s / STEPS
        self._is_pruned(candidate)  # reports the rest
        first = candidate.seeds[self._seeds[0]]
        found = dataclasses.replace(
            found,
            ended_at_s=math.fsum(run.time_s for run in runs) / len(runs),
            runs=tuple(runs),
            curve=curve_of(first.points, self._objective),
        )
        self._end(candidate.trial, found)

    def _end(self, trial: Trial, found: Candidate) -> None:
        self._study.tell(trial, found)
        self.ended.append(found)
        if found.status != "interrupted":
            self._known[in_words(found.values)] = found
        self._best = best_of([each for each in (self._best, found) if each], self._objective)
        self._on_end(found)


def in_order(candidates: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    """Return the candidates, the best first and those without a value last."""
    sign = -1 if objective.maximized else 1

    def key(each: Candidate) -> tuple[bool, float, int]:
        return each.value is None, sign * (each.value or 0.0), each.number

    return sorted(candidates, key=key)


def best_of(candidates: Sequence[Candidate], objective: Objective) -> Candidate | None:
    """Return the first of the best complete candidates; None if none is complete."""
    first = next(iter(in_order(candidates, objective)), None)
    return None if first is None or first.value is None else first


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
