"""Studies whose runs are replaced by curves that are known beforehand."""

import pytest

from outpace.experiment.advising import runner, study
from outpace.experiment.advising.curves import Curve
from outpace.experiment.advising.problem import problem_of
from outpace.experiment.advising.results import advice_of
from outpace.experiment.advising.runner import Budget
from outpace.experiment.advising.study import Study
from outpace.experiment.sources import source_of
from outpace.report.advice.words import sentences
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
    """Runs that reach accuracy 0.9 after 1 s divided by the learning rate; BSP takes twice as long.

    Each run takes 1 s of real time. Training diverges with rates above 0.4; ASP on seed 2 also with
    0.4.
    """

    now_s = 0.0  # the time that the clock shows
    slowest_s = 2.0  # of BSP and all-reduce with learning rate 1
    points = POINTS  # evaluations until the target

    def __init__(self):
        self.ran = []

    def __call__(self, trials, problem, pool, budget, folder_of=None):
        for trial in trials:
            if budget.over:
                budget.is_cut = True
                return
            self.now_s += 1.0
            self.ran.append(problem.candidate(trial.candidate))
            budget.ended()
            yield trial, self._curve(trial)

    def _curve(self, trial):
        limit = 0.3 if trial.candidate == "ASP" and trial.seed == 2 else 0.5
        if trial.rate > limit:
            return Curve(error="the loss became nan")
        is_slow = trial.candidate in ("BSP", "all-reduce")
        whole_s = (self.slowest_s if is_slow else 1.0) / trial.rate
        at = [whole_s * (k + 1) / self.points for k in range(self.points)]
        return Curve(tuple(at), tuple(0.9 * t / whole_s for t in at), None, {"iterations": 10.0})


@pytest.fixture
def runs(monkeypatch):
    found = Runs()
    monkeypatch.setattr(study, "carry_out", found)
    monkeypatch.setattr(runner.time, "monotonic", lambda: found.now_s)
    return found


@pytest.fixture
def carried_out(runs):
    def carry_out(only, config=CONFIG, min_gain=0.05, budget_s=float("inf"), seeds=4):
        said = []
        problem = problem_of(source_of(config, None, {}), Target(accuracy=0.9), None, only)
        whole = Study(problem, None, seeds=seeds, budget=Budget(budget_s), say=said.append)
        return advice_of(whole.run(), min_gain), whole

    return carry_out


def candidate(advice, name):
    return next(each for each in advice.candidates if each.name == name)


def test_a_strategy_that_diverges_on_a_fresh_seed_is_run_with_a_lower_rate(carried_out):
    advice, whole = carried_out(["asp"])
    rates = {each.name: each.learning_rate for each in advice.candidates}
    assert rates == {"BSP": 0.4, "all-reduce": 0.4, "ASP": 0.2, "ASP, over staleness": 0.4}
    asp = candidate(advice, "ASP")
    assert (asp.lowered_from, asp.runs, asp.missed) == (0.4, 4, 0)
    assert asp.time_to_target_s.mean == pytest.approx(5.0)
    assert (
        "ASP diverged on a fresh seed with learning rate 0.4, which was the best of the search: it "
        "was run with 0.2 on all." in sentences(advice)
    )
    assert (advice.name, whole.budget.is_cut) == ("ASP, over staleness", False)


def test_with_little_time_a_strategy_of_each_family_is_tried_first(carried_out):
    # The references are tuned with ten runs after the first, so half of the time is over. Three
    # families are tried then, and the two runs that are left suffice for one fresh seed.
    advice, whole = carried_out(["asp", "ssp", "local-sgd"], budget_s=16.0)
    tried = {each.name for each in advice.candidates if each.runs}
    assert tried == {"BSP", "all-reduce", "ASP, over staleness", "SSP 4", "Local SGD 4"}
    assert (whole.budget.is_cut, advice.name, advice.seeds) == (True, "BSP", (0,))
    assert advice.best_speedup.mean == pytest.approx(2.0)
    assert f"{advice.best} is ahead, 2.0× as fast as BSP on 1 fresh seed" in sentences(advice)[1]


def test_a_gain_below_the_least_one_is_not_recommended_and_the_sentences_say_why(carried_out, runs):
    runs.slowest_s = 1.03
    advice, _ = carried_out(["asp"])
    assert (advice.strategy, advice.distinguishable) == ("bsp", False)
    main, why, *_ = (each.replace("\N{NO-BREAK SPACE}", " ") for each in sentences(advice))
    assert main.startswith("Nothing is reliably better than BSP by 5 % or more here: use BSP")
    assert why == (
        f"{advice.best} is ahead, 1.03× [1.03, 1.03] as fast as BSP on 4 fresh seeds, less than "
        "the 5 % for which a change is recommended."
    )
    advice, _ = carried_out(["asp"], min_gain=0.02)
    assert advice.strategy == "asp"


def test_a_best_rate_at_an_end_of_the_grid_is_said(carried_out):
    config = {**CONFIG, "optimizer": {"lr": 0.08}}  # up to 0.32
    advice, _ = carried_out(["asp"], config)
    assert advice.at_edge == ("BSP", advice.name)
    assert any("is at an end of the rates that were tried" in each for each in sentences(advice))
    config["optimizer"] = {"lr": 0.2}
    assert carried_out(["asp"], config)[0].at_edge == ()


@pytest.mark.parametrize("budget_s", range(2, 10))
def test_a_rate_at_an_end_of_those_tried_when_the_time_is_over_is_not_said(carried_out, budget_s):
    config = {**CONFIG, "optimizer": {"lr": 0.2}}  # 0.4 is the best, and 0.8 is tried later
    advice, whole = carried_out(["asp"], config, budget_s=float(budget_s))
    assert whole.budget.is_cut
    assert advice.at_edge == ()


def test_nothing_begins_after_the_budget(carried_out, runs):
    advice, _ = carried_out(["asp"], budget_s=30.0)
    assert len(advice.seeds) > 1
    assert len(runs.ran) == 30


def test_a_target_at_the_first_log_says_that_the_resolution_is_one_log(carried_out, runs):
    runs.points = 1
    advice, _ = carried_out(["asp"])
    assert advice.first_log == 8  # of the recommended strategy and of BSP
    assert any(
        each.startswith("8 runs reached the target at the first log, so the resolution")
        for each in sentences(advice)
    )


def test_runs_of_some_seconds_on_a_calibrated_cluster_are_too_short_to_judge(
    carried_out, runs, tmp_path
):
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("compute: {kind: lognormal, mean_s: 0.1, cv: 0.01}\n")
    network = tmp_path / "network.yaml"
    network.write_text("network: {latency_s: 0.0}\n")
    config = {**CONFIG, "include": [str(cluster), str(network)]}
    del config["compute"]
    for slowest_s, is_short in ((1.9, True), (3.0, False)):  # 4.75 s and 7.5 s with the best rate
        runs.slowest_s = slowest_s
        advice, _ = carried_out(["asp"], config)
        said = [each for each in sentences(advice) if each.startswith("Too short to judge")]
        assert bool(said) == is_short
        assert advice.recommendation["include"] == config["include"]
    made_up, _ = carried_out(["asp"])
    assert made_up.short is None  # a law that the user makes up is exact
