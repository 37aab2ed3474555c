"""Studies whose runs are replaced by curves that are known beforehand."""

import time

import pytest

from outpace.experiment.advising import changed, study
from outpace.experiment.advising.question.curves import Curve, Goal
from outpace.experiment.advising.question.problem import problem_of
from outpace.experiment.advising.results import advice_of
from outpace.experiment.advising.study import Study
from outpace.experiment.sources import source_of
from outpace.report.advice.words import sentences

CONFIG = {
    "task": {"kind": "digits-mlp"},
    "workers": 8,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "optimizer": {"lr": 0.1},
    "stop": {"virtual_time_s": 100.0},
}
BUDGET_S = 1000.0
POINTS = 20


class Runs:
    """Runs that reach accuracy 0.9 after 1 s over the learning rate, BSP after twice that.

    Training diverges with rates above 0.4; ASP on seed 2 also with 0.4.

    Attributes:
        possible: runs for which the budget suffices.
    """

    possible = 10_000
    cost_s, took_s = 0.0, 1.0

    def __init__(self, problem, pool, deadline_s=None):
        self.problem, self.deadline_s, self.done = problem, deadline_s, 0
        self.started_s = time.monotonic()
        self.every_s = self.ticked = None

    @property
    def over(self):
        if self.deadline_s is None:
            return False
        return self.done >= self.possible * round((self.deadline_s - self.started_s) / BUDGET_S, 2)

    def run(self, trials, folder_of=None):
        for trial in trials:
            if self.over:
                return
            self.done += 1
            yield trial, self._curve(trial)

    def _curve(self, trial):
        limit = 0.3 if trial.candidate == "ASP" and trial.seed == 2 else 0.5
        if trial.rate > limit:
            return Curve.of([], [], "failed", error="the loss became nan")
        whole_s = (2.0 if trial.candidate in ("BSP", "all-reduce") else 1.0) / trial.rate
        at = [whole_s * (k + 1) / POINTS for k in range(POINTS)]
        return Curve.of(at, [0.9 * t / whole_s for t in at], "reached")


@pytest.fixture
def carried_out(monkeypatch):
    monkeypatch.setattr(study, "PoolRunner", Runs)
    monkeypatch.setattr(changed, "PoolRunner", Runs)

    def carry_out(only, **more):
        said = []
        problem = problem_of(source_of(CONFIG, None, {}), Goal(accuracy=0.9), None, only)
        whole = Study(problem, None, say=said.append, **more)
        found = whole.run()
        return advice_of(whole.problem, found), said

    return carry_out


def test_a_strategy_that_diverges_on_a_fresh_seed_is_run_with_a_lower_rate(carried_out):
    advice, said = carried_out(["asp"], seeds=4)
    rates = {each["name"]: each["learning_rate"] for each in advice["candidates"]}
    assert rates == {"BSP": 0.4, "all-reduce": 0.4, "ASP": 0.2, "ASP, over staleness": 0.4}
    (asp,) = [each for each in advice["candidates"] if each["name"] == "ASP"]
    assert (asp["lowered_from"], asp["runs"], asp["missed"]) == (0.4, 4, 0)
    assert asp["time_to_target_s"]["mean"] == pytest.approx(5.0)
    assert "ASP diverges with learning rate 0.4 on a fresh seed; the next lower one is used" in said
    assert (
        "ASP diverged on a fresh seed with learning rate 0.4, which was the best of the search; it "
        "was then run with 0.2 on all." in sentences(advice)
    )
    assert (advice["name"], advice["status"]) == ("ASP, over staleness", "complete")


def test_with_little_time_a_strategy_of_each_family_is_tried_first(carried_out, monkeypatch):
    # The references are tuned with eight runs; half of the time is over after nine. Three families
    # are tried then, and the six runs that are left suffice for one fresh seed of five strategies.
    monkeypatch.setattr(Runs, "possible", 18)
    advice, _ = carried_out(["asp", "ssp", "local-sgd"], seeds=4, budget_s=BUDGET_S)
    tried = {each["name"] for each in advice["candidates"] if each["trials"]}
    assert {"BSP", "all-reduce", "ASP, over staleness", "SSP 4", "Local SGD 4"} <= tried
    assert (advice["status"], advice["name"]) == ("budget", "BSP")
    assert advice["likely"]["speedup_over_bsp"] == pytest.approx(2.0)
    assert advice["seeds"] == [0]
