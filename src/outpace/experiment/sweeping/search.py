"""Carries out a sweep: asks for candidates, watches their runs, and ends those that cannot win.

A sweep repeats: what it finds depends on its seed and configuration, not on the number of processes
or their speed. Candidates are asked for in groups of `parallel`. All candidates of a group begin
with what the study was told of earlier groups, which is what they are pruned by, and it is told of
their ends, in the order of their numbers, when the whole group has ended. A candidate is too slow
beside those with lower numbers. Processes may finish in another order; then a candidate runs longer
than needed, and is judged again when its turn has come (see `candidates.verdict`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.sweeping.candidates import Run, UnderWay, found, reaches, verdict
from outpace.experiment.sweeping.study import Study
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.report.sweeps.result import Candidate, Objective
from outpace.support.yaml_files import in_one_line

_REPEATED: Final = 50  # proposals one after the other that are known already


class Search:
    """Carries out one sweep; see the head of this file.

    Args:
        make: returns the experiment of values by key; raises ConfigError if there is none.
        seeds: of each candidate's runs.
        most: candidates in all, with those of earlier sessions; None: until the budget is spent,
            or all combinations are tried.
        budget_s: seconds after which every candidate is stopped.
        parallel: candidates of a group.
        on_end: called with each candidate that has ended, in the order of their numbers.

    Attributes:
        ended: the candidates, with those of earlier sessions.
        status: see `SweepResult`.
    """

    def __init__(
        self,
        study: Study,
        objective: Objective,
        make: Callable[[dict[str, Any]], Experiment],
        pool: Pool,
        *,
        seeds: Sequence[int],
        most: int | None,
        budget_s: float | None,
        parallel: int,
        on_end: Callable[[Candidate], None],
    ) -> None:
        self._study, self._objective, self._make, self._pool = study, objective, make, pool
        self._seeds, self._parallel, self._on_end = seeds, parallel, on_end
        self._most = math.inf if most is None else most
        self._began_s, self._spent = time.monotonic(), study.spent
        self._deadline_s = math.inf if budget_s is None else self._began_s + budget_s
        self._cpu_s = 0.0  # of the runs that have ended
        self.ended: list[Candidate] = list(study.ended)
        self._known = {in_one_line(each.values): each for each in self.ended}
        self.status: Literal["complete", "budget", "interrupted"] = "interrupted"

    def run(self) -> None:
        """Carry the sweep out. After Ctrl-C all candidates have ended, as `interrupted`."""
        while not self._is_late and (group := self._asked()):
            left = list(group)
            try:
                self._start(group)
                while left and not self._is_late:
                    left_s = self._deadline_s - time.monotonic()
                    for event in self._pool.wait(None if left_s == math.inf else left_s):
                        self._take(group, event)
                    while left and left[0].verdict is not None:
                        self._settle(left.pop(0))
            finally:
                for each in left:
                    self._stop(each, "interrupted")
                while left:
                    self._settle(left.pop(0))
                for each, candidate in zip(group, self.ended[-len(group) :], strict=True):
                    self._study.tell(each.trial, candidate, each.first_points)
        is_cut = any(each.status == "interrupted" for each in self.ended)
        is_done = len(self.ended) >= self._most or not self._is_late
        self.status = "complete" if is_done and not is_cut else "budget"

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self._deadline_s

    def _asked(self) -> list[UnderWay]:
        """Return the next group of candidates; empty: nothing new is left."""
        group: list[UnderWay] = []
        repeated = 0
        while len(group) < min(self._parallel, self._most - len(self.ended)):
            trial, values = self._study.ask()
            words = in_one_line(values)
            if (same := self._known.get(words)) is not None:
                self._study.tell_again(trial, same)
                repeated += 1
                if repeated >= _REPEATED:
                    break
                continue
            if any(in_one_line(each.values) == words for each in group):
                self._study.give_back(trial)
                break  # so that the sampler learns before it is asked again
            runs = [Run(seed) for seed in self._seeds]
            try:
                group.append(UnderWay(trial, values, self._make(values), runs))
            except ConfigError as error:
                group.append(UnderWay(trial, values, None, runs, str(error)))
        return group

    def _start(self, group: Sequence[UnderWay]) -> None:
        for each in group:
            if each.experiment is None:
                self._judge(group, each)
                continue
            for place, run in enumerate(each.runs):
                experiment = dataclasses.replace(each.experiment, seed=run.seed)
                name = f"candidate-{each.number}/seed-{run.seed}"
                self._pool.start(Order((each.number, place), experiment, name=name))

    def _take(self, group: Sequence[UnderWay], event: Point | Ended) -> None:
        """Note an evaluation or the end of a run, and judge its candidate."""
        assert isinstance(event.key, tuple)
        number, place = event.key  # see `_start`
        candidate = next((each for each in group if each.number == number), None)
        if isinstance(event, Ended):
            self._cpu_s += event.cpu_s
        if candidate is None or candidate.verdict is not None:  # it is about to end
            return
        run = candidate.runs[place]
        if isinstance(event, Ended):
            run.ended = event
        elif not run.points or not reaches(run.points[-1], self._objective):
            run.points.append(event)
            if reaches(event, self._objective):
                self._pool.stop(event.key, "it has reached the target")
            elif place == 0 and self._study.is_pruned(run.points):
                candidate.pruned_at = len(run.points)
        self._judge(group, candidate)

    def _judge(self, group: Sequence[UnderWay], candidate: UnderWay) -> None:
        """End the runs of a candidate as soon as its verdict is known."""
        candidate.verdict = verdict(candidate, self._objective, self._bound_s(group, candidate))
        if candidate.verdict is not None:
            self._stop(candidate, candidate.verdict.status)

    def _stop(self, candidate: UnderWay, reason: str) -> None:
        for place in range(len(candidate.runs)):
            self._pool.stop((candidate.number, place), reason)

    def _bound_s(self, group: Sequence[UnderWay], candidate: UnderWay) -> float | None:
        """Return the best time of the candidates before this one that are known to be complete."""
        known = [
            found(each, self._objective, each.verdict)
            for each in group
            if each.number < candidate.number and each.verdict is not None
        ]
        values = [each.value for each in [*self.ended, *known] if each.value is not None]
        return min(values, default=None)

    def _settle(self, each: UnderWay) -> None:
        """Judge the first of the candidates that are left; `interrupted` if it has not ended."""
        if each.verdict is not None:
            bound_s = self._bound_s([], each)
            each.verdict = verdict(each, self._objective, bound_s) or each.verdict
        candidate = found(each, self._objective, each.verdict)
        self._study.keep(each.trial, candidate)
        self.ended.append(candidate)
        if candidate.status != "interrupted":
            self._known[in_one_line(candidate.values)] = candidate
        wall_s, cpu_s = self._spent
        took_s = time.monotonic() - self._began_s
        self._study.spent = wall_s + took_s, cpu_s + self._cpu_s
        self._on_end(candidate)
