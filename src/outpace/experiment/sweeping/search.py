"""Carries out a sweep: gets candidates, watches their runs, and ends those that cannot win.

A candidate is run with several seeds at the same time, and ended early for one of two reasons:

- too slow: the mean of its times over the seeds is already larger than the best time to the target
  of earlier groups. It cannot win on these seeds, so this loses nothing.
- pruned: with the first seed, it is at some virtual time worse than three quarters of the complete
  candidates were at the same time (Optuna's PercentilePruner). This is a guess from the values so
  far.

A sweep can be repeated: its result depends on its seed and configuration, not on the number of
processes or their speed. Candidates come in groups of `parallel`. All candidates of a group are
compared only with earlier groups, and the results are given to the study when the whole group has
ended. The verdict on a candidate depends on its evaluations in the order of the seeds and of
virtual time; later evaluations are left out.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.sweeping.study import Study
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.report.sweeps.result import Candidate, Objective, SeedRun, Status
from outpace.support.estimates import mean_of
from outpace.support.yaml_files import in_one_line

if TYPE_CHECKING:
    from optuna import Trial

_REPEATED: Final = 50  # number of consecutive proposals that are known already


@dataclass(eq=False, slots=True)
class _Run:
    """A run with one seed. points: until it reached the target; ended: None while it runs."""

    seed: int
    points: list[Point] = field(default_factory=list)
    ended: Ended | None = None


@dataclass(eq=False, slots=True)
class _UnderWay:
    """A candidate whose result the study does not have yet.

    Attributes:
        experiment: None if the values do not make a configuration; `error` says why.
        runs: in the order of the seeds; for an ended candidate, the parts that count.
        pruned_at: number of the points of the first run after which it is pruned.
        found: None while it runs.
    """

    trial: Trial
    values: dict[str, Any]
    experiment: Experiment | None
    runs: list[_Run]
    error: str | None = None
    pruned_at: int | None = None
    found: Candidate | None = None


@dataclass(eq=False)
class Search:
    """Carries out one sweep; see the head of this file.

    Attributes:
        make: returns the experiment for values by key; raises ConfigError if they are invalid.
        seeds: seeds of each candidate's runs.
        most: number of candidates in all, including earlier sessions; infinite: until the budget is
            spent, or all combinations are tried.
        budget_s: seconds after which every candidate is stopped.
        parallel: number of candidates in a group.
        ends: called with each candidate that has ended.
        ended: the candidates that have ended, also in earlier sessions.
        status: see `SweepResult`.
    """

    study: Study
    objective: Objective
    make: Callable[[dict[str, Any]], Experiment]
    pool: Pool
    seeds: Sequence[int]
    most: float
    budget_s: float
    parallel: int
    ends: Callable[[Candidate], None]
    status: Literal["complete", "budget", "interrupted"] = "interrupted"

    def __post_init__(self) -> None:
        self._began_s, self._spent_s = time.monotonic(), self.study.spent_s
        self._best_s = math.inf  # best time to the target in earlier groups
        self.ended = list(self.study.ended)

    def run(self) -> None:
        """Carry the sweep out. After Ctrl-C all candidates have ended, as `interrupted`."""
        while not self._is_late and (group := self._asked()):
            values = [each.value for each in self.ended if each.value is not None]
            self._best_s = min(values, default=math.inf)
            try:
                self._start(group)
                while not self._is_late and any(each.found is None for each in group):
                    left_s = self._began_s + self.budget_s - time.monotonic()
                    for event in self.pool.wait(None if left_s == math.inf else left_s):
                        self._take(group, event)
            finally:
                for each in group:
                    self._tell(each, each.found or self._end(each, "interrupted"))
                self.study.spent_s = self._spent_s + time.monotonic() - self._began_s
        is_cut = any(each.status == "interrupted" for each in self.ended)
        is_done = len(self.ended) >= self.most or not self._is_late
        self.status = "complete" if is_done and not is_cut else "budget"

    def _tell(self, each: _UnderWay, found: Candidate) -> None:
        """Give the study the result of a candidate that has ended."""
        if found.status == "interrupted":
            self.study.give_up(each.trial.number, each.trial.params)
            return
        points = each.runs[0].points
        until_s = points[-1].time_s if points else 0.0
        self.study.tell(each.trial, found, self._course(points), until_s)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self._began_s + self.budget_s

    def _asked(self) -> list[_UnderWay]:
        """Return the next group of candidates; empty: there are no new ones."""
        known = {in_one_line(each.values): each for each in self.ended}
        group: dict[str, _UnderWay] = {}
        repeated = 0
        while len(group) < min(self.parallel, self.most - len(self.ended)):
            trial, values = self.study.ask()
            words = in_one_line(values)
            if words in group:  # the sampler learns the result before it is asked again
                self.study.give_up(trial.number, trial.params)
                break
            if words in known:
                self.study.tell(trial, known[words])
                repeated += 1
                if repeated >= _REPEATED:
                    break
                continue
            runs = [_Run(seed) for seed in self.seeds]
            try:
                group[words] = _UnderWay(trial, values, self.make(values), runs)
            except ConfigError as error:
                group[words] = _UnderWay(trial, values, None, runs, str(error))
        return list(group.values())

    def _start(self, group: Sequence[_UnderWay]) -> None:
        for each in group:
            if each.experiment is None:
                self._end(each, "invalid", each.error)
                continue
            for place, run in enumerate(each.runs):
                experiment = dataclasses.replace(each.experiment, seed=run.seed)
                name = f"candidate-{each.trial.number}/seed-{run.seed}"
                self.pool.start(Order((each.trial.number, place), experiment, name=name))

    def _take(self, group: Sequence[_UnderWay], event: Point | Ended) -> None:
        """Note an evaluation or the end of a run, and judge its candidate."""
        assert isinstance(event.key, tuple)
        number, place = event.key  # see `_start`
        candidate = next((each for each in group if each.trial.number == number), None)
        if candidate is None or candidate.found is not None:  # the run is about to end
            return
        run = candidate.runs[place]
        if isinstance(event, Ended):
            run.ended = event
        elif not run.points or not self._reaches(run.points[-1]):
            run.points.append(event)
            if self._reaches(event):
                self.pool.stop(event.key, "it has reached the target")
            elif place == 0 and self.study.is_pruned(self._course(run.points), event.time_s):
                candidate.pruned_at = len(run.points)
        self._judge(candidate)

    def _judge(self, candidate: _UnderWay) -> None:
        """End a candidate if the evaluations of its runs are sufficient to decide."""
        has_target = self.objective.target is not None
        # Limit of the sum of the times.
        bound_s = self._best_s * len(candidate.runs) if has_target else math.inf
        before_s = 0.0
        for place, run in enumerate(candidate.runs):
            for count, point in enumerate(run.points, 1):
                if self._reaches(point):
                    before_s += point.time_s
                    break
                is_slow = before_s + point.time_s > bound_s
                if is_slow or (place == 0 and count == candidate.pruned_at):
                    cut = _Run(run.seed, run.points[:count])
                    candidate.runs[place:] = [cut]
                    self._end(candidate, "too-slow" if is_slow else "pruned")
                    return
            else:
                if run.ended is None or run.ended.status == "stopped":
                    return
                if run.ended.status == "failed" or has_target:
                    del candidate.runs[place + 1 :]
                    status: Status = "failed" if run.ended.status == "failed" else "missed"
                    self._end(candidate, status, run.ended.error)
                    return
        self._end(candidate, "complete")

    def _end(self, candidate: _UnderWay, status: Status, error: str | None = None) -> Candidate:
        """End the runs of a candidate, and return its results."""
        for place in range(len(self.seeds)):
            self.pool.stop((candidate.trial.number, place), status)
        runs = [self._seed_run(run) for run in candidate.runs if run.points or run.ended]
        found = Candidate(
            candidate.trial.number,
            candidate.values,
            status,
            ended_at_s=math.fsum(run.time_s for run in runs) / len(runs) if runs else None,
            error=error,
            runs=tuple(runs),
        )
        candidate.found = self._valued(found) if status == "complete" else found
        self.ended.append(candidate.found)
        self.ends(candidate.found)
        return candidate.found

    def _valued(self, known: Candidate) -> Candidate:
        """Return a complete candidate with its value; a failed one if a run has no value."""
        name = "time_s" if self.objective.is_time else self.objective.quantity or ""
        values = [getattr(run, name) for run in known.runs]
        if not all(value is not None and math.isfinite(value) for value in values):
            error = f"a run has no {name} at its end"
            return dataclasses.replace(known, status="failed", error=error)
        mean = mean_of(values)
        if self.objective.is_time:
            mean = mean.within(0.0)
        return dataclasses.replace(known, value=mean.mean, low=mean.low, high=mean.high)

    def _seed_run(self, run: _Run) -> SeedRun:
        points = run.points
        reached = next((point.time_s for point in points if self._reaches(point)), None)
        last_s = points[-1].time_s if points else 0.0
        if run.ended is not None:
            last_s = max(last_s, float(run.ended.summary.get("virtual_time_s") or 0.0))
        accuracies = [point.accuracy for point in points if point.accuracy is not None]
        losses = [point.train_loss for point in points if point.train_loss is not None]
        return SeedRun(
            run.seed,
            last_s if reached is None else reached,
            reached is not None,
            accuracies[-1] if accuracies else None,
            losses[-1] if losses else None,
        )

    def _reaches(self, point: Point) -> bool:
        """Return True if an evaluation has reached the target of the sweep."""
        target = self.objective.target
        return target is not None and target.is_reached(point.accuracy, point.train_loss)

    def _course(self, points: Sequence[Point]) -> list[tuple[float, float]]:
        """Return times of evaluations, and their finite values of the objective's quantity."""
        if self.objective.quantity is None:
            return []
        known = ((point.time_s, getattr(point, self.objective.quantity)) for point in points)
        return [(at, value) for at, value in known if value is not None and math.isfinite(value)]
