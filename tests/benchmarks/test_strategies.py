"""The suite that compares all strategies on six clusters and three tasks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks.strategies.outcome import results
from benchmarks.strategies.page import PAGE, page
from benchmarks.strategies.rates import Tried, search
from benchmarks.strategies.suite import CLUSTERS, cells
from benchmarks.strategies.table import README, readme_with, table

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.support.estimates import TimeTo


def test_the_readme_and_the_page_have_the_recorded_results():
    outcomes = results(cells())
    expected = readme_with(table(outcomes, [cell.name for cell in cells()]), README)
    assert README.read_text("utf-8") == expected
    assert PAGE.read_text("utf-8") == page(outcomes)


def searched(time_of, first=0.4, runs=7, limit_s=30.0):
    """Return the trials of a search on one seed, and what it chose; time_of a rate, in s."""
    found, trials = search(first, runs, 2, [1000, 1001], limit_s), []
    trial = next(found)
    while True:
        trials.append(trial)
        time_s = time_of(trial.rate)
        reached = time_s <= trial.limit_s
        try:
            trial = found.send(TimeTo(time_s if reached else trial.limit_s, reached))
        except StopIteration as stop:
            return trials, stop.value


def valley(best):
    """A time to the target with its minimum of 6 s at one rate, twice as long eight times away."""
    return lambda rate: 6.0 * 2 ** abs(math.log(rate / best, 8))


@pytest.mark.parametrize("best", [0.005, 0.05, 0.4, 0.6, 6.0])
def test_the_search_finds_the_rate_with_as_many_runs_wherever_it_is(best):
    trials, tuned = searched(valley(best))
    assert len(trials) == 7 + 2
    assert tuned.rate == pytest.approx(best, rel=0.42)  # between two places of a grid of √2
    assert not tuned.at_edge


def test_a_rate_beyond_the_reach_of_the_search_is_at_the_edge():
    _, tuned = searched(valley(1e6), limit_s=1e9)
    assert tuned.at_edge
    assert tuned.rate == pytest.approx(0.4 * 4**5, rel=1e-2)


def test_runs_of_the_search_end_at_one_and_a_half_times_the_best_so_far():
    trials, _ = searched(valley(0.4))
    assert trials[0].limit_s == 30.0
    assert {trial.limit_s for trial in trials[1:7]} == {9.0}


def test_where_nothing_reaches_the_target_lower_rates_are_tried():
    trials, tuned = searched(lambda _: math.inf)
    assert [trial.rate for trial in trials[:5]] == [0.4, 1.6, 0.1, 0.025, 0.00625]
    assert tuned.tried[0] == Tried(0.4, 1000, TimeTo(30.0, False))


def test_every_strategy_can_be_run_on_every_cluster():
    for cell in cells(["digits-cnn"]):
        data = dict(cell.data)
        if cell.cluster == "recorded":  # needs a file
            data["compute"] = {"kind": "constant", "mean_s": 0.1}
        for each in cell.strategies():
            wanted = replace(cell, data=data).configuration(each, 0.1, 3, 9.0)
            run = experiment_from(wanted, "test")
            assert (run.seed, run.optimizer.lr, run.stop.virtual_time_s) == (3, 0.1, 9.0)


def test_cells_are_chosen_by_task_by_cluster_or_by_both():
    assert len(cells()) == 18
    assert [cell.cluster for cell in cells(["digits-cnn"])] == list(CLUSTERS)
    assert [cell.name for cell in cells(["char-gpt/even", "bursts"])] == [
        "digits-cnn/bursts",
        "fashion-mnist-cnn/bursts",
        "char-gpt/even",
        "char-gpt/bursts",
    ]
    with pytest.raises(ConfigError, match="no cell digits; tasks: digits-cnn, fashion"):
        cells(["digits"])
