"""Carries out a sweep: begins candidates, watches their runs, and ends those that cannot win.

A sweep repeats: what it finds depends on its seed and configuration, not on the number of processes
or their speed. Candidates are asked for and told in the order of their numbers. When a candidate is
asked for, at most `parallel` - 1 are not told, and a sampler that learns is told of the end of the
first of them only when another candidate needs its place. So each proposal is based on the same
results in every session. A candidate is judged by candidates with lower numbers (see `judging`).
Processes may finish in another order; then a candidate runs longer than needed, and what comes
after its verdict is left out when it is told.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.sweeping.candidate import Candidate, best_of, completed, curve_of
from outpace.experiment.sweeping.judging import STEPS, Judge, Run, Verdict
from outpace.experiment.sweeping.objective import Objective
from outpace.experiment.sweeping.pruning import Pruning
from outpace.experiment.sweeping.space import in_words
from outpace.experiment.sweeping.study import Study
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.experiment.trials.pool import Carrier

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

_REPEATED: Final = 50  # proposals one after the other that are known already


@dataclass(eq=False, slots=True)
class _UnderWay:
    """A candidate that is not told yet.

    Attributes:
        experiment: None if the values make none.
        completed: the complete candidates by which it is judged.
        judge: of the runs while they run; its verdict ends them.
        pruned_at: where the runs were when it was to be pruned, as in `Verdict.at`.
        value: of a complete candidate.
    """

    trial: Trial
    values: dict[str, Any]
    experiment: Experiment | None
    completed: Sequence[FrozenTrial]
    runs: dict[int, Run] = field(default_factory=dict)
    judge: Judge | None = None
    verdict: Verdict | None = None
    pruned_at: tuple[int, int] | None = None
    value: float | None = None

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
        budget_s: seconds after which every candidate is stopped.
        parallel: most candidates that have begun and are not told.
        learns: True if what the study proposes depends on what it was told.
        prune: False to end no candidate because others were better at the same virtual time.
        processes, elsewhere: see `Pool`.
        on_end: called with each candidate that has ended, in the order of their numbers.
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
        parallel: int,
        learns: bool,
        prune: bool,
        processes: int | None,
        elsewhere: Carrier | None,
        on_end: Callable[[Candidate], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self._study, self._objective, self._make = study, objective, make
        self._seeds, self._most, self._budget_s = list(seeds), most, budget_s
        self._parallel, self._learns = parallel, learns
        self._pruning = Pruning(maximized=objective.maximized) if prune else None
        self._deadline_s = math.inf
        self._on_end = on_end
        self._pool = Pool(processes, warning=lambda _, text: on_warning(text), elsewhere=elsewhere)
        self._under_way: list[_UnderWay] = []  # in the order of their numbers
        self._running: dict[int, _UnderWay] = {}  # by number, also told ones until their runs end
        self._places = parallel  # candidates under way, with the one that is asked for next
        self._asked = 0
        self._repeated = 0
        self._nothing_new = False
        self.ended: list[Candidate] = list(study.ended)
        self._known = {in_words(each.values): each for each in self.ended}
        self._best = best_of(self.ended, objective)
        # After each candidate that was told: complete ones, and the time between two reports.
        self._after = [(len(study.completed()), study.step_s)]
        self.spent = False  # the budget
        self.cpu_s = 0.0  # of the runs that have ended

    def run(self) -> None:
        """Carry the sweep out. After Ctrl-C all candidates have ended, as `interrupted`."""
        if self._budget_s is not None:
            self._deadline_s = time.monotonic() + self._budget_s
        try:
            with self._pool:
                while True:
                    self._tell_ended()
                    self._begin()
                    left_s = self._deadline_s - time.monotonic()
                    if left_s <= 0 or not (self._under_way or self._wanted()):
                        break
                    if self._running:
                        for event in self._pool.wait(left_s if left_s < math.inf else None):
                            self._take(event)
            done = self._nothing_new or (self._most is not None and len(self.ended) >= self._most)
            self.spent = left_s <= 0 and not done
        finally:
            while self._under_way:
                self._tell_first()

    # -- beginning -------------------------------------------------------------

    def _begin(self) -> None:
        """Begin runs as long as there is room: of the earliest candidates first."""
        while self._pool.room:
            if (each := self._next(self._has_turn)) is not None:
                self._start(each)
            elif self._wanted() and self._has_place():
                self._ask()
            elif (each := self._next(lambda _: True)) is not None:
                self._start(each)  # nothing else is to be done, so this one may be in vain
            else:
                return

    def _next(self, may: Callable[[_UnderWay], bool]) -> _UnderWay | None:
        """Return the first candidate with a seed that is not begun, and that may begin it."""
        return next(
            (
                each
                for each in self._under_way
                if each.verdict is None and len(each.runs) < len(self._seeds) and may(each)
            ),
            None,
        )

    def _has_turn(self, candidate: _UnderWay) -> bool:
        return all(run.over for run in candidate.runs.values())

    def _wanted(self) -> bool:
        """True if another candidate is to begin."""
        begun = len(self.ended) + len(self._under_way)
        in_time = time.monotonic() < self._deadline_s
        more = self._most is None or begun < self._most
        return more and in_time and not self._nothing_new

    def _has_place(self) -> bool:
        """Make place for the next candidate by telling of the first; False if that is running."""
        while len(self._under_way) >= self._places:
            if self._under_way[0].verdict is None:
                return False
            self._tell_first()
        return True

    def _ask(self) -> None:
        trial, values = self._study.ask()
        words = in_words(values)
        if (same := self._known.get(words)) is not None:
            self._study.tell_again(trial, same)
            self._repeated += 1
            self._nothing_new = self._repeated >= _REPEATED
            return
        if any(in_words(each.values) == words for each in self._under_way):
            self._study.give_back(trial)
            self._places = len(self._under_way)  # so that the sampler learns before it is asked
            return
        self._repeated, self._places = 0, self._parallel
        told = max(0, self._asked - self._parallel + 1)
        complete, step_s = self._after[-1 if self._learns else told]
        self._asked += 1
        candidate = _UnderWay(trial, values, None, self._study.completed()[:complete])
        self._under_way.append(candidate)
        try:
            candidate.experiment = self._make(values)
        except ConfigError as error:
            candidate.verdict = Verdict("invalid", (0, 0), str(error))
            return
        candidate.judge = self._judge(candidate, step_s, self._prunes(candidate))
        self._running[trial.number] = candidate
        self._start(candidate)

    def _start(self, candidate: _UnderWay) -> None:
        """Begin the run with the next seed."""
        assert candidate.experiment is not None
        seed = self._seeds[len(candidate.runs)]
        candidate.runs[seed] = Run()
        experiment = dataclasses.replace(candidate.experiment, seed=seed)
        name = f"candidate-{candidate.number}/seed-{seed}"
        self._pool.start(Order((candidate.number, seed), experiment, name=name))

    # -- watching --------------------------------------------------------------

    def _take(self, event: Point | Ended) -> None:
        assert isinstance(event.key, tuple)
        number, seed = event.key  # see `_start`
        candidate = self._running[number]
        run = candidate.runs[seed]
        if isinstance(event, Ended):
            run.ended = event
            self.cpu_s += event.cpu_s
        elif candidate.verdict is None and not run.reached:  # otherwise it is about to end
            run.points.append(event)
            if self._objective.reached(event):
                run.reached = True
                self._pool.stop(event.key, "it has reached the target")
        if candidate.verdict is None:
            assert candidate.judge is not None
            candidate.verdict = candidate.judge.verdict(self._bound_s(number))
            if candidate.verdict is not None:
                self._settle(candidate, candidate.verdict)
        if candidate.verdict is not None and all(run.ended for run in candidate.runs.values()):
            self._running.pop(number, None)

    def _bound_s(self, number: int) -> float | None:
        """Return the best time of the candidates before this one that are known to be complete."""
        known = [each.value for each in self._under_way if each.number < number]
        best = None if self._best is None else self._best.value
        return min((value for value in (*known, best) if value is not None), default=None)

    def _settle(self, candidate: _UnderWay, verdict: Verdict) -> None:
        """End the runs of a candidate, and keep what is known of it until it is told."""
        for seed, run in candidate.runs.items():
            if run.ended is None:
                self._pool.stop((candidate.number, seed), verdict.status)
        assert candidate.judge is not None
        found = self._found(candidate, candidate.judge, verdict)
        candidate.value = found.value
        self._study.keep(candidate.trial, found)

    def _judge(
        self,
        candidate: _UnderWay,
        step_s: float | None,
        prune: Callable[[Mapping[int, float], tuple[int, int]], bool],
    ) -> Judge:
        return Judge(candidate.runs, self._seeds, self._objective, step_s, prune)

    def _prunes(
        self, candidate: _UnderWay
    ) -> Callable[[Mapping[int, float], tuple[int, int]], bool]:
        def prune(reports: Mapping[int, float], at: tuple[int, int]) -> bool:
            if self._pruning is None or not self._pruning.is_pruned(candidate.completed, reports):
                return False
            candidate.pruned_at = at
            return True

        return prune

    # -- telling ---------------------------------------------------------------

    def _tell_ended(self) -> None:
        """Tell of the first candidates if they have ended, unless the sampler must not know yet."""
        while self._under_way and self._under_way[0].verdict is not None:
            if self._learns and self._wanted():
                return
            self._tell_first()

    def _tell_first(self) -> None:
        """Tell of the first candidate. It is `interrupted` if it has not ended."""
        candidate = self._under_way.pop(0)
        best = None if self._best is None else self._best.value
        judge = self._judge(candidate, self._study.step_s, lambda _, at: at == candidate.pruned_at)
        verdict = candidate.verdict
        if verdict is None:
            verdict = Verdict("interrupted", (0, 0))
            judge.verdict(best)
        elif candidate.experiment is not None:  # the best is known now
            verdict = judge.verdict(best) or verdict
        found = self._found(candidate, judge, verdict)
        if found.status == "complete" and self._study.step_s is None and found.runs[0].time_s > 0:
            self._study.step_s = found.runs[0].time_s / STEPS
            judge = self._judge(candidate, self._study.step_s, lambda _, __: False)
            judge.verdict(None)
        self._study.tell(candidate.trial, found, judge.reports)
        self.ended.append(found)
        if found.status != "interrupted":
            self._known[in_words(found.values)] = found
        self._best = best_of([each for each in (self._best, found) if each], self._objective)
        complete, _ = self._after[-1]
        self._after.append((complete + (found.status == "complete"), self._study.step_s))
        self._on_end(found)

    def _found(self, candidate: _UnderWay, judge: Judge, verdict: Verdict) -> Candidate:
        status = verdict.status
        if not candidate.runs:
            return Candidate(candidate.number, candidate.values, status, error=verdict.error)
        runs = judge.described(early=status in ("too-slow", "pruned"))
        if status in ("complete", "missed"):
            found = completed(candidate.number, candidate.values, runs, self._objective)
        else:
            found = Candidate(candidate.number, candidate.values, status, error=verdict.error)
        first = candidate.runs[self._seeds[0]].points
        of_first = verdict.at[0] == 0 and status != "interrupted"
        return dataclasses.replace(
            found,
            ended_at_s=math.fsum(run.time_s for run in runs) / len(runs),
            runs=tuple(runs),
            curve=curve_of(first[: verdict.at[1]] if of_first else first, self._objective),
        )
