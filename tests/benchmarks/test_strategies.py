"""The suite that compares all strategies on six clusters and three tasks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks.strategies import __main__ as command
from benchmarks.strategies import measuring
from benchmarks.strategies.outcome import read
from benchmarks.strategies.rates import search
from benchmarks.strategies.suite import cells
from benchmarks.strategies.table import page, summary

from outpace.config.reading import experiment_from
from outpace.errors import DivergenceError
from outpace.support.estimates import TimeTo


def searched(time_of, first=0.4, runs=7, limit_s=30.0):
    """Return the trials of a search on one seed, and what it chose; time_of a rate, in s."""
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


# Seconds to the target at the rate 0.4; other strategies take 8 s.
SECONDS = {"bsp": 4.0, "ssp": 2.0, "hpsgd": 3.0, "gossip": math.inf}


def time_by_formula(data, target, limit_s):
    """A run's time depends on strategy and seed: 0.1 s more with each.

    With four times the rate, or a quarter of it, it diverges.
    """
    if not 0.2 < data["optimizer"]["lr"] < 0.8:
        raise DivergenceError("the parameters stopped being finite")
    time_s = SECONDS.get(data["sync"]["kind"], 8.0) + 0.1 * (data["seed"] % 1000)
    return TimeTo(min(time_s, limit_s), time_s <= limit_s)


ORIGIN = {"date": "2026-01-02", "commit": "abc1234"}


@pytest.fixture
def formula(monkeypatch):
    monkeypatch.setattr(measuring, "time_to_target", time_by_formula)


def few(*names):
    return replace(cells(["digits-cnn/even"])[0], only=names)


def test_a_recorded_cell_has_times_ratios_and_bounds(formula, tmp_path):
    cell = few("BSP", "SSP 4", "gossip", "ASP")
    measuring.record([cell], ORIGIN, tmp_path, 1)
    found = read(cell, tmp_path)
    assert found.complete
    assert found.best.name == "SSP 4"
    times = {each.name: each for each in found.strategies}
    assert times["BSP"].time_s.mean == pytest.approx(4.2)
    assert [time.time_s for _, time in times["SSP 4"].times] == [2.0, 2.1, 2.2, 2.3, 2.4]
    # The others may take 3 times the 4.2 s of BSP: gossip never arrives, ASP does after 8 s.
    assert {time.time_s for _, time in times["gossip"].times} == {12.6}
    assert (times["gossip"].reached, times["ASP"].reached) == (0, 5)
    ratio = math.prod((2 + k) / (4 + k) for k in (0, 0.1, 0.2, 0.3, 0.4)) ** 0.2
    assert found.relative(times["SSP 4"]).mean == pytest.approx(ratio)
    text = summary([found], [cell.name, "digits-cnn/bursts", "char-gpt/even", "char-gpt/bursts"])
    assert "2026-01-02, commit abc1234: 1 cell" in text
    assert "Without a complete result: digits-cnn on bursts; all of char-gpt." in text
    assert f"| even | SSP 4: {ratio:.2f} (" in text
    assert found.alike == []
    shown = page([found])
    assert "| BSP | 4.20 s (4.00 to 4.40) |" in shown
    assert "| gossip | > 2.86 |" in shown  # the lower end of the interval


@pytest.mark.slow
def test_the_reduced_suite_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--quick", "--cells", "digits-cnn/even", "--processes", "1"]) == 0
    shown = capsys.readouterr().out
    assert "| HPSGD |" in shown
