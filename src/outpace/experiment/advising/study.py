"""One study: a pilot, the search, fresh seeds, and what would change the advice."""

from __future__ import annotations

import functools
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from outpace.errors import RunError
from outpace.experiment.advising.changed import changed_runs, on_changed_cluster
from outpace.experiment.advising.judging.found import Found, provisional
from outpace.experiment.advising.limits import (
    LONGEST,
    horizon_of,
    period_s,
    require_reached,
    rounded,
)
from outpace.experiment.advising.progress import Progress, State
from outpace.experiment.advising.question.candidates import ALL_REDUCE, BSP, in_order_of_trial
from outpace.experiment.advising.question.curves import Bound, Curve, Trial
from outpace.experiment.advising.question.problem import Problem
from outpace.experiment.advising.question.scenarios import scenarios
from outpace.experiment.advising.searching.fresh import FreshRuns
from outpace.experiment.advising.searching.runner import PoolRunner
from outpace.experiment.advising.searching.search import FINALISTS, SEEDS, Search, Space, carry_out
from outpace.experiment.trials import Pool
from outpace.report.words import plural
from outpace.support.notices import warnings_to

WHOLE: Final = 3  # fresh seeds whose runs continue after the target, for the final accuracy
_POINTS: Final = 20  # evaluations of BSP until the target, in the search
_LEAST_POINTS: Final = 10  # of the fastest trial so far, in the search; of a reference, its own
_FRESH_POINTS: Final = 25  # of the fastest strategy, on fresh seeds
_APART: Final = 1_000_000  # from the fresh seeds to those of the search
_FURTHER: Final = 1.25  # of BSP's time, where the final accuracy is compared
_SEARCH, _FRESH = 0.5, 0.85  # shares of the budget after which search and fresh seeds end
_FIRST_ANSWER_S: Final = 20.0
_NEXT_ANSWER_S: Final = 30.0
_LEAST_SEEDS: Final = 3  # fresh seeds that come before all else, as time allows
_FEW: Final = 12  # runs: with fewer, all of the time is for the search of strategies
_PATIENCE: Final = 0.1  # of BSP's iteration: how long a partial push waits after its quorum


class Study:
    """Carries out a study.

    Attributes:
        problem: with settings that follow from the pilot's run times.

    Args:
        seeds: number of fresh seeds.
        budget_s: seconds; None: until the study is complete.
        folder: for the trace of BSP; None: it is not kept.
        say: called with provisional answers.
        show: called with how far the study has come.
    """

    def __init__(
        self,
        problem: Problem,
        pool: Pool,
        *,
        seeds: int,
        budget_s: float | None = None,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
        show: Callable[[State], None] = lambda _: None,
    ) -> None:
        self.problem, self._pool, self._seeds = problem, pool, seeds
        self._budget_s, self._folder, self._say = budget_s, folder, say
        self._started_s = time.monotonic()
        self._said_s, self._said = -math.inf, ""
        self._progress = Progress(budget_s, show)
        self._fresh_left = 0  # runs on fresh seeds that are still planned
        self._runner = PoolRunner(problem, pool)
        self._runner.ticked = self._tick
        self._extended = False  # the search has more time, until each family has been tried
        self._cut = False  # something was left out for want of time
        self.found: Found | None = None  # None until the pilot has ended

    def run(self) -> Found:
        """Carry the study out.

        Raises:
            RunError: if the budget is too small for one run, or no run reached the target.
            KeyboardInterrupt: `found` has what is known by then.
        """
        self._progress.show()
        trial, pilot = self._pilot()
        found = self._begin(trial, pilot)
        try:
            self._plan(found)
            self._until(1.0 if self._is_tight(found) else _SEARCH)
            carry_out(found.search, self._runner, self._news)
            if self._runner.over and self._is_narrow(found):
                self._until(1.0)
                self._extended = True
                carry_out(found.search, self._runner, self._news)
            self._cut = self._runner.over
            require_reached(found, self.problem)
            self._fresh(found)
            self._until(1.0)
            self._scenarios(found)
            found.ended = "budget" if self._cut else "complete"
        except KeyboardInterrupt:
            found.ended = "interrupted"
            raise
        finally:
            found.cost_s = self._runner.cost_s
            found.more_s = self._more_s(found)
            found.elapsed_s = time.monotonic() - self._started_s
        return found

    # -- the search --------------------------------------------------------------------

    def _until(self, share: float) -> None:
        """Give trials time until this share of the budget is used."""
        if self._budget_s is not None:
            self._runner.deadline_s = self._started_s + share * self._budget_s

    def _pilot(self) -> tuple[Trial, Curve]:
        """Return a run of BSP as configured, which shows how long runs take."""
        problem = self.problem
        bound = Bound(math.inf, problem.goal.level)
        trial = Trial(BSP, problem.rate or 1.0, problem.seed + _APART, bound)
        self._until(1.0)
        for _, curve in self._runner.run([trial]):
            return trial, curve
        sleeps = " (what a script sleeps or loads counts, too)" if problem.is_script else ""
        raise RunError(
            f"the budget of {self._budget_s:g} s is too small for one run of BSP, which takes more "
            f"than {self._progress.elapsed_s:.3g} s here{sleeps}: give more time with --budget, or "
            "a target that is reached sooner"
        )

    def _begin(self, trial: Trial, pilot: Curve) -> Found:
        problem, level = self.problem, self.problem.goal.level
        reached = pilot.time_to(level)
        horizon_s = horizon_of(problem, pilot, reached)
        most_s = (reached.time_s if reached.reached else horizon_s / 2) / _POINTS
        done = pilot.totals.get("iterations", 0.0)
        if done and pilot.end_s:
            self.problem = problem.with_patience(rounded(_PATIENCE * pilot.end_s / done))
            self._runner.problem = self.problem
        names = [each.name for each in problem.candidates]
        references = tuple(name for name in (BSP, ALL_REDUCE) if name in names)
        seeds = tuple(problem.seed + _APART + k for k in range(SEEDS))
        order = in_order_of_trial(problem.candidates)
        families = {e.family for e in problem.candidates if e.name not in references}
        space = Space(
            tuple(names),
            references,
            problem.rate,
            seeds,
            horizon_s,
            problem.goal,
            order,
            first=len(families),
            climbs=self._runs_left(self._runner.took_s) >= _FEW,
        )
        search = Search(space)
        if problem.is_script:  # evaluates itself, so the pilot is like all other trials
            search.note(trial, pilot)
        else:
            self._runner.every_s = lambda trial: self._searched_every_s(trial, most_s)
        self.found = Found(search, horizon_s, one_run_s=self._runner.took_s)
        self._tick()
        return self.found

    def _searched_every_s(self, trial: Trial, most_s: float) -> float:
        """Return the time between evaluations, by the curve that a trial is compared with."""
        found, level = self.found, self.problem.goal.level
        every_s = period_s(trial.bound.best, level, _LEAST_POINTS, most_s)
        assert found is not None
        found.searched_every_s = max(every_s, found.searched_every_s or 0.0)
        return every_s

    def _news(self, search: Search) -> None:
        """Say the answer so far, the first time within half a minute."""
        self._end_extension()
        now_s = time.monotonic()
        whole = all(known.trials for known in search.known.values())
        due = _FIRST_ANSWER_S if self._said == "" else _NEXT_ANSWER_S
        since = now_s - (self._started_s if self._said == "" else self._said_s)
        if search.best_curve is None or (since < due and not (whole and self._said == "")):
            return
        text = provisional(search)
        if text != self._said:
            self._say(f"after {now_s - self._started_s:.0f} s: {text}")
            self._said, self._said_s = text, now_s

    # -- how far it has come -----------------------------------------------------------

    def _tick(self, done: int | None = None) -> None:
        self._progress.done = self._runner.done if done is None else done
        self._progress.show()

    def _plan(self, found: Found) -> None:
        """Say how long one run takes, and how many there are."""
        space = found.search.space
        finalists = min(FINALISTS, len(space.names) - len(space.references))
        kept = len(space.references) + finalists
        self._fresh_left = self._seeds * kept
        planned = space.trials + self._fresh_left + self._changed_runs(1 + finalists)
        self._progress.begin("search", planned)
        self._say(
            f"search: {plural(len(space.names), 'candidate')}; one run of BSP takes "
            f"{found.one_run_s:.3g} s here, and about {planned} runs are planned"
        )

    def _is_tight(self, found: Found) -> bool:
        """Return True if there is only time to try a candidate of each family, or fewer."""
        return self._runs_left(found.one_run_s) < _FEW

    def _end_extension(self) -> None:
        """Keep half of the time that is left for fresh seeds once each family has been tried."""
        if not self._extended or self.found is None or self._is_narrow(self.found):
            return
        self._extended = False
        assert self._budget_s is not None
        self._until((1 + min(1.0, self._progress.elapsed_s / self._budget_s)) / 2)

    def _is_narrow(self, found: Found) -> bool:
        """Return True if not even a candidate of each family has been tried."""
        search = found.search
        tried = sum(bool(search.known[name].trials) for name in search.space.others)
        return tried < search.space.first

    def _runs_left(self, one_run_s: float) -> float:
        """Return how many runs of this length there is time for, one after the other."""
        if self._budget_s is None:
            return math.inf
        return (self._budget_s - self._progress.elapsed_s) / max(1e-9, one_run_s)

    def _more_s(self, found: Found) -> float:
        """Return how long the rest of the search and the fresh seeds would take."""
        done = sum(len(known.trials) for known in found.search.known.values())
        runs = max(0, found.search.space.trials - done) + self._fresh_left
        return self._progress.for_runs_s(runs)

    # -- fresh seeds -------------------------------------------------------------------

    def _fresh(self, found: Found) -> None:
        """Run the finalists and the references on the fresh seeds."""
        search, level = found.search, self.problem.goal.level
        if not self.problem.is_script:
            every_s = period_s(search.best_curve, level, _FRESH_POINTS)
            found.every_s = every_s
            self._runner.every_s = lambda _: every_s
        possible = self._progress.possible()
        if possible < 2:
            self._say("there is no time for fresh seeds")
            self._cut = True
            return
        names = search.for_fresh_seeds(possible / _LEAST_SEEDS)
        if len(names) < 2:
            self._cut = True
            return
        self._cut = self._cut or len(names) < len(search.for_fresh_seeds(math.inf))
        bsp_s = math.exp(search.log_time(BSP, search.best_rate(BSP)))
        if not math.isfinite(bsp_s):
            bsp_s = found.horizon_s
        horizon_s = min(found.horizon_s, LONGEST * bsp_s)
        # The final quality is left out if there is not enough time for all seeds.
        is_short = possible < self._seeds * len(names)
        found.whole_s = 0.0 if is_short else min(horizon_s, _FURTHER * bsp_s)
        found.horizon_fresh_s = horizon_s
        seeds = [self.problem.seed + k for k in range(self._seeds)]
        whole = dict.fromkeys(seeds[:WHOLE], found.whole_s)
        fresh = FreshRuns(search, names, seeds, Bound(horizon_s, level), whole)
        count = int(max(1.0, min(self._seeds, possible / len(names))))
        self._say(f"on {plural(count, 'fresh seed')}: {', '.join(names)}")
        try:
            # An answer on few seeds is worth more than what would change it.
            for share, some in ((1.0, seeds[:_LEAST_SEEDS]), (_FRESH, seeds)):
                self._until(share)
                self._carry_out(fresh, some)
        finally:
            fresh.settle()
            self._fresh_left = len(fresh.left())
            found.keep(names, fresh.trials(), fresh.curves)
            if self._folder is not None and (self._folder / "summary.json").is_file():
                found.folder = self._folder
        self._cut = self._cut or bool(self._fresh_left)

    def _carry_out(self, fresh: FreshRuns, seeds: Sequence[int]) -> None:
        """Run on these fresh seeds, with a lower learning rate where training diverges."""
        while (trials := fresh.left(seeds)) and not self._runner.over:
            self._fresh_left = len(fresh.left())
            changed = self._changed_runs(len(fresh.names))
            self._progress.begin("fresh seeds", self._fresh_left + changed)
            for trial, curve in self._runner.run(trials, self._folder_of):
                fresh.curves[trial] = curve
                self._fresh_left -= 1
            for name, rate in fresh.lower().items():
                self._say(
                    f"{name} diverges with learning rate {rate:g} on a fresh seed; the next lower "
                    "one is used"
                )
                if name == BSP and self._folder is not None:
                    shutil.rmtree(self._folder, ignore_errors=True)

    def _folder_of(self, trial: Trial) -> Path | None:
        """Return a folder for BSP's run on the first fresh seed, whose trace has the waits."""
        is_first = trial.candidate == BSP and trial.seed == self.problem.seed
        return self._folder if is_first else None

    # -- what would change the advice ----------------------------------------------------

    def _scenarios(self, found: Found) -> None:
        """Look at the finalists again on changed clusters."""
        said, is_run = set[str](), bool(found.fresh) and not self._runner.over

        def say(text: str) -> None:
            if is_run and text not in said:
                self._say(f"on a changed cluster: {text}")
            said.add(text)

        with warnings_to(say):
            changed = scenarios(self.problem)
            self._progress.begin("changed clusters", self._changed_runs(len(found.fresh)))
            if is_run:
                self._say(f"changed clusters: {', '.join(each.name for each in changed)}")
            for scenario in changed:
                ticked = functools.partial(self._tick_after, self._progress.done)
                whole = on_changed_cluster(
                    scenario, found, self._pool, self._runner, self._seeds, ticked
                )
                self._cut = self._cut or not whole

    def _tick_after(self, before: int, done: int) -> None:
        self._tick(before + done)

    def _changed_runs(self, names: int) -> int:
        return changed_runs(self._seeds, names)
