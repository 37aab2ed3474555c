"""The goals of `adaptive`, judged on seeds that have chosen nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.strategies import fresh, recording, rivals
from benchmarks.strategies.outcome import Measured, Outcome
from benchmarks.strategies.rates import Tuned
from benchmarks.strategies.suite import cells
from benchmarks.strategies.table import README, readme_with

from outpace.experiment.advising.question.candidates import candidates
from outpace.experiment.trials.orders import Ended, Point
from outpace.support.estimates import Estimate, TimeTo

ORIGIN = {"date": "2026-01-02", "commit": "abc"}
ADAPTIVE, STALE = rivals.RIVALS[:2]
STEADY = tuple(4.0 + seed % 3 for seed in range(20))


@pytest.fixture(autouse=True)
def folder(tmp_path, request, monkeypatch):
    if "readme" not in request.node.name:
        monkeypatch.setattr(fresh, "FOLDER", tmp_path)
    return tmp_path


def measured(candidate, rate, times_s, seeds=range(100)):
    times = [TimeTo(time_s, reached=True) for time_s in times_s]
    found = tuple(zip(seeds[: len(times)], times, strict=True))
    return Measured(candidate, Tuned(rate, at_edge=False, tried=()), found)


def searched(name="digits-cnn/even", best=2, rate=0.4, rivals_measured=(ADAPTIVE,)):
    """Five seeds of BSP, and of one that is the best; and of the rivals."""
    (cell,) = cells([name])
    bsp, other = candidates(16)[0], candidates(16)[best]
    fixed = Outcome(cell, ORIGIN, (measured(bsp, 0.4, [5.0] * 5), measured(other, 0.2, [4.0] * 5)))
    found = tuple(measured(each, rate, [4.5] * 5) for each in rivals_measured)
    return fixed, Outcome(rivals.cell_of(fixed), ORIGIN, found)


def compared(name, ratio):
    """What twenty fresh seeds find if adaptive takes so many times as long."""
    found = fresh.comparison(*searched(name))
    best, adaptive = found.outcome.missing
    for each, times in ((best, STEADY), (adaptive, [ratio * time_s for time_s in STEADY])):
        row = measured(each, found.rates[each.name].rate, times, fresh.SEEDS)
        found = replace(found, outcome=replace(found.outcome.having(row), origin=ORIGIN))
    return found


def test_the_readme_has_the_recorded_table():
    text = fresh.table(fresh.comparisons(None))
    whole = README.read_text("utf-8")
    assert whole == readme_with(text, README, fresh.BEGIN, fresh.END)


def test_the_best_fixed_strategy_and_adaptive_run_again_on_twenty_seeds_that_chose_nothing():
    fixed, others = searched(rivals_measured=(ADAPTIVE, STALE))
    found = fresh.comparison(fixed, others)
    names = [each.name for each in found.outcome.missing]
    assert (found.best, names) == ("ASP", ["ASP", "adaptive, quorums", "adaptive, stale"])
    assert {name: each.rate for name, each in found.rates.items()} == {
        "ASP": 0.2,
        "adaptive, quorums": 0.4,
        "adaptive, stale": 0.4,
    }
    used = {*fixed.cell.seeds, *fixed.cell.tuning.seeds}
    assert len(set(found.cell.seeds) - used) == 20
    assert found.cell.limit_s == others.cell.limit_s == 15.0  # 3 times BSP's


def test_nothing_is_compared_where_adaptive_was_not_measured():
    assert fresh.comparison(*searched(rivals_measured=())) is None


def test_goals_are_judged_in_the_cells_that_they_are_about():
    text = fresh.table(
        [
            compared("digits-cnn/even", 1.0),
            compared("digits-cnn/bursts", 2.0),
            compared("digits-cnn/moving", 0.5),
        ]
    )
    # The standard error of 7 fours, 7 fives and 6 sixes is 0.185, and t at 19 degrees is 2.093.
    assert "| digits-cnn/even | ASP: 4.95 s (4.56 to 5.34) | 1.00 (1.00 to 1.00) |  |" in text
    assert "strategy: met in digits-cnn/even; missed in digits-cnn/bursts.\n" in text
    moves = "- `adaptive, quorums`, at least 10 % less where the slow workers change"
    assert f"{moves}: met in digits-cnn/moving.\n" in text
    assert text.endswith("change: not measured.")  # with `stale: true`


def test_an_interval_on_both_sides_of_the_goal_decides_nothing():
    assert fresh.judged(Estimate(1.0, 0.98, 1.02), 1.03) == "met"
    assert fresh.judged(Estimate(1.0, 0.95, 1.06), 1.03) == "not decided"
    assert fresh.judged(Estimate(1.1, 1.04, 1.20), 1.03) == "missed"
    assert fresh.judged(Estimate(1.1, 1.04, None), 1.03) == "missed"  # some runs were not there


class AtOnce:
    """A pool whose runs have the target after 3 s of virtual time."""

    def __init__(self):
        self.asked, self.waiting = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self, order):
        self.asked.append(order.experiment)
        self.waiting.append(order)

    def wait(self):
        ended = [
            Ended(each.key, "complete", None, {}, (Point(each.key, 3.0, 0, 0, 1.0, None, None),), 1)
            for each in self.waiting
        ]
        self.waiting = []
        return ended


def test_runs_have_the_rates_that_were_found_and_results_with_other_rates_are_left_out(
    monkeypatch, folder
):
    pool = AtOnce()
    monkeypatch.setattr(recording, "Pool", lambda processes: pool)
    found = fresh.comparison(*searched())
    recording.record([found.cell], ORIGIN, folder, 2, tuned={found.cell.name: found.rates})
    rates = {(each.sync.kind, each.optimizer.lr) for each in pool.asked}
    assert rates == {("asp", 0.2), ("adaptive", 0.4)}
    assert len(pool.asked) == 2 * 20  # none to search for a rate

    again = fresh.comparison(*searched())
    assert again.outcome.complete
    assert again.beside_best("adaptive, quorums").mean == pytest.approx(1.0)
    other = fresh.comparison(*searched(rate=0.8))
    assert [each.name for each in other.outcome.missing] == ["adaptive, quorums"]
