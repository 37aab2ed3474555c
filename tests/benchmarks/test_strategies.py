"""The suite that compares all strategies on six clusters and three tasks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks.strategies import __main__ as command
from benchmarks.strategies.rates import search
from benchmarks.strategies.suite import cells

from outpace.config.reading import experiment_from
from outpace.support.estimates import TimeTo


def searched(time_of, first=0.4, runs=7, limit_s=30.0):
    """Return the trials of a search on one seed, and its choice. time_of: seconds by rate."""
    trials = []

    def run(trial):
        trials.append(trial)
        time_s = time_of(trial.rate)
        reached = time_s <= trial.limit_s
        return TimeTo(time_s if reached else trial.limit_s, reached)

    return trials, search(first, runs, 2, [1000, 1001], limit_s, run)


def valley(best):
    """A time to the target with its minimum of 6 s at one rate, twice as long eight times away."""
    return lambda rate: 6.0 * 2 ** abs(math.log(rate / best, 8))


@pytest.mark.parametrize("best", [0.005, 0.05, 0.4, 0.6, 6.0])
def test_the_search_finds_the_rate_with_as_many_runs_wherever_it_is(best):
    trials, tuned = searched(valley(best))
    assert len(trials) == 7 + 2
    assert tuned.rate == pytest.approx(best, rel=0.42)  # between two places of a grid of √2
    assert not tuned.at_edge


def test_every_strategy_can_be_run_on_every_cluster():
    for cell in cells(["digits-cnn"]):
        data = dict(cell.data)
        if cell.cluster == "recorded":  # needs a file
            data["compute"] = {"kind": "constant", "mean_s": 0.1}
        for each in cell.strategies():
            wanted = replace(cell, data=data).configuration(each, 0.1, 3, 9.0)
            run = experiment_from(wanted, "test")
            assert (run.seed, run.optimizer.lr, run.stop.virtual_time_s) == (3, 0.1, 9.0)


@pytest.mark.slow
def test_the_reduced_suite_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--quick", "--cells", "digits-cnn/even", "--processes", "1"]) == 0
    shown = capsys.readouterr().out
    assert "| HPSGD |" in shown
