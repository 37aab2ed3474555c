"""One study: a pilot, the search, fresh seeds, and what would change the advice."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from outpace.errors import RunError
from outpace.experiment.advising.budget import Budget, State
from outpace.experiment.advising.calibration_error import PredictionError, prediction_error
from outpace.experiment.advising.candidates import ALL_REDUCE, BSP, in_order_of_trial
from outpace.experiment.advising.changed import Scenario, scenarios
from outpace.experiment.advising.curves import Bound, Curve, Trial
from outpace.experiment.advising.outcome import Outcome, require_reached, time_to
from outpace.experiment.advising.problem import Problem
from outpace.experiment.advising.runner import PoolRunner
from outpace.experiment.advising.search import FINALISTS, SEEDS, Search, Space, carry_out
from outpace.experiment.advising.statistics import chosen
from outpace.experiment.trials import Pool
from outpace.report.words import plural
from outpace.support.estimates import TimeTo
from outpace.support.notices import once, warnings_to

WHOLE: Final = 3  # fresh seeds whose runs continue after the target, for the final quality
LONGEST: Final = 3.0  # horizon of a run, in times of BSP
_POINTS: Final = 20  # evaluations of BSP until the target, in the search
_LEAST_POINTS: Final = 10  # of the fastest trial so far, in the search; of a reference, its own
_FRESH_POINTS: Final = 25  # of the fastest strategy, on fresh seeds
_APART: Final = 1_000_000  # from the fresh seeds to those of the search
_FURTHER: Final = 1.25  # of BSP's time, where the final quality is compared
_SEARCH, _FRESH = 0.5, 0.85  # shares of the budget after which search and fresh seeds end
_ANSWER_S: Final = 20.0  # from one provisional answer to the next
_LEAST_SEEDS: Final = 3  # fresh seeds that come before all else, as time allows
_CHANGED_SEEDS: Final = 3  # of each changed cluster, at most
_CHANGED: Final = 3  # clusters
_FEW: Final = 12  # runs: with fewer, all of the time is for the search of strategies
_PATIENCE: Final = 0.1  # of BSP's iteration: how long a partial push waits after its quorum


class Study:
    """Carries out a study.

    Attributes:
        problem: with settings that follow from the pilot's run times.
        outcome: what is known so far; None until the pilot has ended.

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
        self.problem, self._pool = problem, pool
        self._seeds = [problem.seed + place for place in range(seeds)]
        self._folder, self._say = folder, say
        self._budget = Budget(budget_s, show)
        self._runner = PoolRunner(problem, pool, self._budget)
        self._said, self._said_s = "", 0.0  # the last provisional answer, and when
        self._fresh_left = 0  # runs on fresh seeds that are still planned
        self.outcome: Outcome | None = None

    def run(self) -> Outcome:
        """Carry the study out.

        Raises:
            RunError: if the budget is too small for one run, or no run reached the target.
            KeyboardInterrupt: `outcome` has what is known by then.
        """
        budget = self._budget
        found = self.outcome = self._begun(*self._pilot())
        try:
            self._plan(found)
            carry_out(found.search, self._runner, begin=self._begin_round, news=self._news)
            is_cut = budget.over
            require_reached(found, self.problem)
            is_cut |= not self._fresh(found)
            budget.until(1.0)
            found.error = self._prediction_error(found)
            self._changed_clusters(found)
            found.ended = "budget" if is_cut or budget.over else "complete"
        except KeyboardInterrupt:
            found.ended = "interrupted"
            raise
        finally:
            done = sum(len(known.trials) for known in found.search.known.values())
            left = max(0, found.search.space.trials - done) + self._fresh_left
            found.more_s = left * budget.one_run_s
            found.cost_s, found.elapsed_s = self._runner.cost_s, budget.elapsed_s
        return found

    # -- the search --------------------------------------------------------------------

    def _pilot(self) -> tuple[Trial, Curve]:
        """Return a run of BSP as configured, which shows how long runs take."""
        problem = self.problem
        bound = Bound(math.inf, problem.target.level)
        trial = Trial(BSP, problem.rate or 1.0, problem.seed + _APART, bound)
        for _, curve in self._runner.run([trial]):
            return trial, curve
        sleeps = " (what a script sleeps or loads counts, too)" if problem.is_script else ""
        raise RunError(
            f"the budget of {self._budget.whole_s:g} s is too small for one run of BSP, which "
            f"takes more than {self._budget.elapsed_s:.3g} s here{sleeps}: give more time with "
            "--budget, or a target that is reached sooner"
        )

    def _begun(self, trial: Trial, pilot: Curve) -> Outcome:
        """Return an outcome with a search that has not begun."""
        horizon_s = _horizon_s(self.problem, pilot)
        if (done := pilot.totals.get("iterations", 0.0)) and pilot.end_s:
            self.problem = self.problem.with_patience(_rounded(_PATIENCE * pilot.end_s / done))
            self._runner.problem = self.problem
        problem, one_run_s = self.problem, pilot.cost_s
        names = tuple(each.name for each in problem.candidates)
        references = tuple(name for name in (BSP, ALL_REDUCE) if name in names)
        families = {e.family for e in problem.candidates if e.name not in references}
        space = Space(
            names,
            references,
            problem.rate,
            tuple(problem.seed + _APART + place for place in range(SEEDS)),
            horizon_s,
            problem.target.level,
            in_order_of_trial(problem.candidates),
            first=len(families),
            climbs=self._budget.left_s >= _FEW * one_run_s,
        )
        found = Outcome(Search(space), horizon_s, one_run_s=one_run_s)
        if problem.is_script:  # evaluates itself, so the pilot is like all other trials
            found.search.note(trial, pilot)
            return found
        reached = pilot.time_to(problem.target.level)
        most_s = (reached.time_s if reached.reached else horizon_s / 2) / _POINTS
        # By the curve that a trial is compared with.
        self._runner.every_s = lambda trial: _period_s(
            trial.bound.best, found.level, _LEAST_POINTS, most_s
        )
        return found

    def _plan(self, found: Outcome) -> None:
        """Say how long one run takes, and how many there are."""
        space = found.search.space
        finalists = min(FINALISTS, len(space.names) - len(space.references))
        self._fresh_left = len(self._seeds) * (len(space.references) + finalists)
        planned = space.trials + self._fresh_left + self._changed_runs(1 + finalists)
        self._budget.begin("search", planned)
        self._say(
            f"search: {plural(len(space.names), 'candidate')}; one run of BSP takes "
            f"{found.one_run_s:.3g} s here, and about {planned} runs are planned"
        )

    def _begin_round(self, search: Search) -> None:
        """Give a round of the search its time: half of the budget, or all that a choice needs."""
        needs_all = search.is_narrow or not search.space.climbs
        self._budget.until(1.0 if needs_all else _SEARCH)

    def _news(self, search: Search) -> None:
        """Say the answer so far, every 20 seconds at most."""
        assert self.outcome is not None
        now_s = self._budget.elapsed_s
        if search.best_curve is None or now_s < self._said_s + _ANSWER_S:
            return
        leader = self.outcome.leader
        name, much = BSP, ""
        if leader is not None:
            over, name = leader.speedup_over_bsp, leader.name
            much = "" if over is None else f", about {over:.2f} times as fast as BSP"
        rate = (
            "" if search.space.rate is None else f" with learning rate {search.best_rate(name):g}"
        )
        text = f"{name}{rate} is ahead{much}"
        if text != self._said:
            self._say(f"after {now_s:.0f} s: {text}")
            self._said, self._said_s = text, now_s

    # -- fresh seeds -------------------------------------------------------------------

    def _fresh(self, found: Outcome) -> bool:
        """Run the finalists and the references on the fresh seeds.

        Returns:
            False if some of these runs were left out for want of time.
        """
        search, budget = found.search, self._budget
        if not self.problem.is_script:
            every_s = found.every_s = _period_s(search.best_curve, found.level, _FRESH_POINTS)
            self._runner.every_s = lambda _: every_s
        possible = budget.possible
        names = search.for_fresh_seeds(possible / _LEAST_SEEDS)
        if possible < 2 or len(names) < 2:
            self._say("there is no time for fresh seeds")
            return False
        bsp_s = math.exp(search.log_time(BSP, search.best_rate(BSP)))
        bsp_s = bsp_s if math.isfinite(bsp_s) else found.horizon_s
        found.horizon_fresh_s = min(found.horizon_s, LONGEST * bsp_s)
        # Whole runs are longer than those so far; without much time the final quality is left out.
        if possible >= LONGEST * len(self._seeds) * len(names):
            found.whole_s = min(found.horizon_fresh_s, _FURTHER * bsp_s)
        count = int(max(1.0, min(len(self._seeds), possible / len(names))))
        self._say(f"on {plural(count, 'fresh seed')}: {', '.join(names)}")
        curves: dict[Trial, Curve] = {}
        try:
            # An answer on few seeds is worth more than what would change it.
            for share, seeds in ((1.0, self._seeds[:_LEAST_SEEDS]), (_FRESH, self._seeds)):
                budget.until(share)
                self._run_fresh(found, names, seeds, curves)
        finally:
            self._keep(found, names, curves)
        return not self._fresh_left and len(names) == len(search.for_fresh_seeds(math.inf))

    def _fresh_trials(
        self, found: Outcome, names: Sequence[str], seeds: Sequence[int]
    ) -> list[Trial]:
        """Return the trials of these strategies and seeds with the present learning rates."""
        bound = Bound(found.horizon_fresh_s, found.level)
        continued = self._seeds[:WHOLE]
        return [
            Trial(
                name,
                found.search.best_rate(name),
                seed,
                bound,
                found.whole_s if seed in continued else 0.0,
            )
            for seed in seeds
            for name in names
        ]

    def _run_fresh(
        self,
        found: Outcome,
        names: Sequence[str],
        seeds: Sequence[int],
        curves: dict[Trial, Curve],
    ) -> None:
        """Run on these fresh seeds; where training diverges, once with the next lower rate.

        A learning rate is chosen on a few seeds, and training may diverge with it on another one.
        The strategy then gets the lower rate on all fresh seeds. Which rate that is follows from
        divergence alone and not from times, so the times of the lower rate are not flattered.
        """
        search = found.search
        while not self._budget.over:
            trials = [t for t in self._fresh_trials(found, names, seeds) if t not in curves]
            if not trials:
                return
            every = self._fresh_trials(found, names, self._seeds)
            self._fresh_left = sum(trial not in curves for trial in every)
            changed = self._changed_runs(len(names))
            self._budget.begin("fresh seeds", self._fresh_left + changed)
            for trial, curve in self._runner.run(trials, self._trace_folder):
                curves[trial] = curve
            diverged = {t.candidate: t.rate for t in trials if t in curves and curves[t].diverged}
            for name, rate in diverged.items():
                if search.space.rate is None or name in search.lowered:
                    continue
                search.lower_rate(name)
                self._say(
                    f"{name} diverges with learning rate {rate:g} on a fresh seed; the next lower "
                    "one is used"
                )
                if name == BSP and self._folder is not None:
                    shutil.rmtree(self._folder, ignore_errors=True)

    def _trace_folder(self, trial: Trial) -> Path | None:
        """Return a folder for BSP's run on the first fresh seed, whose trace has the waits."""
        is_first = trial.candidate == BSP and trial.seed == self.problem.seed
        return self._folder if is_first else None

    def _keep(self, found: Outcome, names: Sequence[str], curves: dict[Trial, Curve]) -> None:
        """Keep the runs on those fresh seeds on which all of these strategies were run."""
        search = found.search
        for name, before in list(search.lowered.items()):
            # A lowered rate that was run on fewer seeds than the rate before is taken back.
            now = search.best_rate(name)
            own = [trial.rate for trial in curves if trial.candidate == name]
            if own.count(now) < own.count(before):
                del search.lowered[name]
        trials = self._fresh_trials(found, names, self._seeds)
        self._fresh_left = sum(trial not in curves for trial in trials)
        missing = {trial.seed for trial in trials if trial not in curves}
        found.seeds = tuple(seed for seed in self._seeds if seed not in missing)
        if found.seeds:
            found.fresh = {
                name: [curves[t] for t in trials if t.candidate == name and t.seed in found.seeds]
                for name in names
            }
        if self._folder is not None and (self._folder / "summary.json").is_file():
            found.folder = self._folder

    def _prediction_error(self, found: Outcome) -> PredictionError:
        """Return the error of what is predicted of the strategy that the fresh seeds speak for."""
        if len(found.seeds) < 2:
            return prediction_error(self.problem, {}, self._pool, self._budget)
        names = dict.fromkeys((BSP, chosen(found.times, BSP).name))
        fresh = {name: (found.search.best_rate(name), found.fresh[name]) for name in names}
        return prediction_error(self.problem, fresh, self._pool, self._budget)

    # -- what would change the advice ----------------------------------------------------

    def _changed_runs(self, names: int) -> int:
        """Return how many runs the changed clusters need, with this many fresh strategies."""
        return _CHANGED * min(_CHANGED_SEEDS, len(self._seeds)) * max(0, names - 1)

    def _changed_clusters(self, found: Outcome) -> None:
        """Look at the finalists again on changed clusters."""
        if not found.fresh or self._budget.over:
            return
        with warnings_to(once(lambda text: self._say(f"on a changed cluster: {text}"))):
            changed = scenarios(self.problem)
            self._budget.begin("changed clusters", self._changed_runs(len(found.fresh)))
            self._say(f"changed clusters: {', '.join(each.name for each in changed)}")
            for scenario in changed:
                found.changed.append((scenario, self._changed_times(scenario, found)))

    def _changed_times(self, scenario: Scenario, found: Outcome) -> dict[str, list[TimeTo]]:
        """Return times of BSP and the finalists on a changed cluster; empty without enough time."""
        search, problem = found.search, scenario.problem
        if problem is None:
            return {}
        usable = {each.name for each in problem.candidates}
        names = [n for n in found.fresh if n in usable and n != ALL_REDUCE]
        bound = Bound(LONGEST * found.horizon_fresh_s, found.level)
        trials = [
            Trial(name, search.best_rate(name), seed, bound)
            for seed in self._seeds[:_CHANGED_SEEDS]
            for name in names
        ]
        runner = PoolRunner(problem, self._pool, self._budget)
        runner.every_s = self._runner.every_s
        curves = dict(runner.run(trials))
        self._runner.cost_s += runner.cost_s
        if len(curves) < len(trials):
            return {}
        return {
            name: [
                time_to(curves[trial], found.level, bound.horizon_s)
                for trial in trials
                if trial.candidate == name
            ]
            for name in names
        }


def _horizon_s(problem: Problem, pilot: Curve) -> float:
    """Return the virtual time at which trials end that have not reached the target.

    Raises:
        RunError: if the pilot, a run of BSP, failed, and the configuration has no limit.
    """
    stop = problem.data.get("stop") or {}
    if (limit_s := stop.get("virtual_time_s")) is not None:
        return float(limit_s)
    if pilot.ended == "failed":
        raise RunError(
            f"BSP failed with the configured learning rate: {pilot.error}; configure one with "
            "which it runs, or give stop.virtual_time_s"
        )
    reached = pilot.time_to(problem.target.level)
    if not reached.reached:
        return pilot.end_s
    done, iterations = pilot.totals.get("iterations", 0.0), stop.get("iterations")
    if iterations and done:
        return max(pilot.end_s, pilot.end_s * float(iterations) / done)
    return LONGEST * reached.time_s


def _period_s(best: Curve | None, level: float, points: int, most_s: float = math.inf) -> float:
    """Return the virtual time from one evaluation to the next.

    Args:
        best: the fastest trial so far.
        level: score of the target.
        points: evaluations until that trial's time to the target.
        most_s: at most this.
    """
    fastest_s = math.inf if best is None else (best.crossing_s(level) or math.inf)
    return _rounded(max(1e-6, min(most_s, fastest_s / points)))


def _rounded(value: float) -> float:
    """Return the value with two significant digits."""
    return float(f"{value:.2g}")
