"""Studies whose runs are replaced by curves that are known beforehand."""

import dataclasses

import pytest

from outpace.experiment.advising import budget, study
from outpace.experiment.advising.calibration_error import PredictionError
from outpace.experiment.advising.changed import scenarios
from outpace.experiment.advising.curves import Curve
from outpace.experiment.advising.problem import problem_of
from outpace.experiment.advising.results import advice_of
from outpace.experiment.advising.study import Study
from outpace.experiment.sources import source_of
from outpace.report.advice.words import rows, sentences
from outpace.support.targets import Target

CONFIG = {
    "task": {"kind": "digits-mlp"},
    "workers": 8,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "optimizer": {"lr": 0.1},
    "stop": {"virtual_time_s": 100.0},
}
POINTS = 20


class Runs:
    """Runs that reach accuracy 0.9 after 1 s over the learning rate, BSP after twice that.

    Each takes 1 s of real time. Training diverges with rates above 0.4, that of ASP on seed 2 also
    with 0.4.
    """

    cost_s = 0.0
    now_s = 0.0  # what the clock shows
    slowest_s = 2.0  # of BSP and all-reduce with learning rate 1
    points = POINTS  # evaluations until the target
    ran = ()

    def __init__(self, problem, pool, budget):
        self.problem, self.budget, self.every_s = problem, budget, None

    @property
    def over(self):
        return self.budget.over

    def run(self, trials, folder_of=None):
        for trial in trials:
            if self.over:
                return
            Runs.now_s += 1.0
            Runs.ran = (*Runs.ran, self.problem.candidate(trial.candidate))
            self.budget.ended()
            yield trial, self._curve(trial)

    def _curve(self, trial):
        limit = 0.3 if trial.candidate == "ASP" and trial.seed == 2 else 0.5
        if trial.rate > limit:
            return Curve.of([], [], "failed", error="the loss became nan")
        is_slow = trial.candidate in ("BSP", "all-reduce")
        whole_s = (self.slowest_s if is_slow else 1.0) / trial.rate
        at = [whole_s * (k + 1) / self.points for k in range(self.points)]
        totals = {"iterations": 10.0}
        return Curve.of(at, [0.9 * t / whole_s for t in at], "reached", None, 1.0, totals)


@pytest.fixture
def carried_out(monkeypatch):
    monkeypatch.setattr(study, "PoolRunner", Runs)
    monkeypatch.setattr(budget.time, "monotonic", lambda: Runs.now_s)
    monkeypatch.setattr(Runs, "now_s", 0.0)
    monkeypatch.setattr(Runs, "ran", ())

    def carry_out(only, config=CONFIG, min_gain=0.05, **more):
        said = []
        problem = problem_of(source_of(config, None, {}), Target(accuracy=0.9), None, only)
        whole = Study(problem, None, say=said.append, **more)
        found = whole.run()
        return advice_of(whole.problem, found, min_gain), said

    return carry_out


def test_a_strategy_that_diverges_on_a_fresh_seed_is_run_with_a_lower_rate(carried_out):
    advice, said = carried_out(["asp"], seeds=4)
    rates = {each.name: each.learning_rate for each in advice.candidates}
    assert rates == {"BSP": 0.4, "all-reduce": 0.4, "ASP": 0.2, "ASP, over staleness": 0.4}
    asp = advice.candidate("ASP")
    assert (asp.lowered_from, asp.runs, asp.missed) == (0.4, 4, 0)
    assert asp.time_to_target_s.mean == pytest.approx(5.0)
    assert "ASP diverges with learning rate 0.4 on a fresh seed; the next lower one is used" in said
    assert (
        "ASP diverged on a fresh seed with learning rate 0.4, which was the best of the search; it "
        "was then run with 0.2 on all." in sentences(advice)
    )
    assert (advice.name, advice.status) == ("ASP, over staleness", "complete")


def test_a_lowered_rate_for_which_there_was_no_time_is_taken_back(carried_out):
    # The search ends after 13 of 26 runs. On three fresh seeds four strategies have 12 runs; ASP
    # diverges on the last one, and there is time for one run with half of its rate.
    advice, said = carried_out(["asp"], seeds=3, budget_s=26.0)
    assert any(each.startswith("ASP diverges with learning rate 0.4") for each in said)
    asp = advice.candidate("ASP")
    assert (asp.learning_rate, asp.lowered_from, asp.runs, asp.missed) == (0.4, None, 3, 1)


def test_with_little_time_a_strategy_of_each_family_is_tried_first(carried_out):
    # The references are tuned with eight runs after the first, so half of the time is over. Three
    # families are tried then, and the two runs that are left suffice for one fresh seed.
    advice, _ = carried_out(["asp", "ssp", "local-sgd"], seeds=4, budget_s=14.0)
    tried = {each.name for each in advice.candidates if each.trials}
    assert {"BSP", "all-reduce", "ASP, over staleness", "SSP 4", "Local SGD 4"} <= tried
    assert (advice.status, advice.name) == ("budget", "BSP")
    assert advice.ahead.speedup_over_bsp == pytest.approx(2.0)
    assert (advice.seeds, advice.ahead.fresh) == ((0,), True)
    ahead = f"So far {advice.ahead.name} is ahead, about 2 times as fast as BSP (1 fresh seed"
    assert ahead in sentences(advice)[0]


def test_a_gain_below_the_least_one_is_not_recommended_and_the_sentences_say_why(
    carried_out, monkeypatch
):
    monkeypatch.setattr(Runs, "slowest_s", 1.03)
    advice, _ = carried_out(["asp"], seeds=4)
    assert (advice.strategy, advice.distinguishable) == ("bsp", False)
    assert advice.probability_best["BSP"] == 0.0
    main, *others = sentences(advice)
    assert main.startswith("Nothing is reliably better than BSP by 5\N{NO-BREAK SPACE}% or more")
    why = "is less than the 5\N{NO-BREAK SPACE}% for which a change is recommended"
    assert f"{advice.best} was 1.03× [1.03, 1.03] as fast, which {why}." in main
    (probable,) = [each for each in others if each.startswith("Probability")]
    assert f"BSP is recommended all the same: the gain of {advice.best} over BSP, " in probable
    assert why in probable
    Runs.now_s = 0.0
    advice, _ = carried_out(["asp"], seeds=4, min_gain=0.02)
    assert advice.strategy == "asp"


def test_changed_clusters_keep_the_wait_of_partial_pushes(carried_out):
    carried_out(["partial-push", "drop-stragglers"], seeds=2)
    waits = [each.sync["timeout_s"] for each in Runs.ran if each.sync["kind"] == "partial-push"]
    assert len(waits) > 2  # on changed clusters, too
    problem = problem_of(source_of(CONFIG, None, {}), Target(accuracy=0.9), None, ["partial-push"])
    changed = [each.problem for each in scenarios(problem.with_patience(0.25)) if each.problem]
    assert {each.candidate("partial push").sync["timeout_s"] for each in changed} == {0.25}


def test_the_error_of_the_calibration_costs_no_time_after_the_budget(carried_out, tmp_path):
    """A pool that is None fails if a run is begun."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "compute: {kind: lognormal, mean_s: 0.1, cv: 0.01}\n"
        "calibrated: {workers: 8, compute: {errors: {mean_s: 0.05, cv: 0.0}}}\n"
    )
    config = {**CONFIG, "include": str(cluster)}
    del config["compute"]
    advice, _ = carried_out(["asp"], config, seeds=4, budget_s=30.0)
    assert len(advice.seeds) > 1
    assert advice.one_run.no_error == "there was no time for the runs that would show it"


def test_a_target_at_the_first_log_says_that_the_resolution_is_one_log(carried_out, monkeypatch):
    monkeypatch.setattr(Runs, "points", 1)
    advice, _ = carried_out(["asp"], seeds=4)
    assert advice.first_log == 8  # of the recommended strategy and of BSP
    assert any(
        each.startswith("8 of 8 runs reached the target at the first log, so the resolution")
        for each in sentences(advice)
    )


def test_runs_of_some_seconds_on_a_calibrated_cluster_are_too_short_to_judge(
    carried_out, monkeypatch, tmp_path
):
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("compute: {kind: lognormal, mean_s: 0.1, cv: 0.01}\n")
    config = {**CONFIG, "include": str(cluster)}
    del config["compute"]
    monkeypatch.setattr(study, "prediction_error", lambda *_: PredictionError())
    for slowest_s, is_short in ((1.9, True), (3.0, False)):  # 4.75 s and 7.5 s with the best rate
        monkeypatch.setattr(Runs, "slowest_s", slowest_s)
        advice, _ = carried_out(["asp"], config, seeds=4)
        said = [each for each in sentences(advice) if each.startswith("Too short to judge")]
        assert bool(said) == is_short
    made_up, _ = carried_out(["asp"], seeds=4)
    assert made_up.short is None  # a law that the user makes up is exact


def test_the_table_has_the_fastest_on_fresh_seeds_first_and_then_bounds(carried_out):
    advice, _ = carried_out(["asp"], seeds=4)
    missed = dataclasses.replace(advice.candidate("ASP"), reached=False, missed=1)
    kept = tuple(missed if each.name == "ASP" else each for each in advice.candidates)
    names = [row[0] for row in rows(dataclasses.replace(advice, candidates=kept))[1:]]
    assert names[0] == "ASP, over staleness"
    assert names[-1] == "ASP"
