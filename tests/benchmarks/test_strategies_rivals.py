"""Strategies that change in the run, beside the best fixed strategy of a cell of the suite."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.strategies import fresh, rivals
from benchmarks.strategies.outcome import Measured, Outcome, read
from benchmarks.strategies.rates import Tuned
from benchmarks.strategies.suite import cells
from benchmarks.strategies.table import README, readme_with

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.advising.question.candidates import candidates
from outpace.support.estimates import TimeTo

ORIGIN = {"date": "2026-01-02", "commit": "abc"}
QUORUMS = "adaptive, quorums"
STEADY = (4.0, 5.0, 6.0, 4.0, 5.0)


def measured(candidate, *times_s):
    times = tuple((seed, TimeTo(time_s, reached=True)) for seed, time_s in enumerate(times_s))
    return Measured(candidate, Tuned(0.4, at_edge=False, tried=()), times)


def fixed_of(name, *times_s):
    (cell,) = cells([name])
    bsp = candidates(16)[0]
    return Outcome(cell, ORIGIN, (measured(bsp, *times_s),))


def beside(fixed, **times_s):
    cell = rivals.cell_of(fixed)
    known = {each.name: each for each in rivals.RIVALS}
    return Outcome(cell, ORIGIN, tuple(measured(known[name], *t) for name, t in times_s.items()))


def test_the_readme_has_the_recorded_table():
    text = rivals.table(rivals.everything())
    whole = README.read_text("utf-8")
    assert whole == readme_with(text, README, rivals.BEGIN, rivals.END)


def test_every_rival_can_be_run_on_every_cluster():
    for cell in cells(["digits-cnn", "digits-cnn/moving"]):
        data = dict(cell.data)
        if cell.cluster == "recorded":  # needs a file
            data["compute"] = {"kind": "constant", "mean_s": 0.1}
        for each in rivals.RIVALS:
            wanted = replace(cell, data=data).configuration(each, 0.1, 3, 9.0)
            run = experiment_from(wanted, "test")
            assert (run.seed, run.optimizer.lr, run.stop.virtual_time_s) == (3, 0.1, 9.0)


def test_times_are_relative_to_the_best_fixed_strategy():
    even, bursts = (fixed_of(f"digits-cnn/{name}", *STEADY) for name in ("even", "bursts"))
    twice = [2 * time_s for time_s in STEADY]
    text = rivals.table(
        [(even, beside(even, **{QUORUMS: STEADY})), (bursts, beside(bursts, **{QUORUMS: twice}))]
    )
    assert "| digits-cnn/even | BSP: 4.80 s (3.76 to 5.84) | 1.00 (1.00 to 1.00) |" in text
    assert "| digits-cnn/bursts | BSP: 4.80 s (3.76 to 5.84) | 2.00 (2.00 to 2.00) |" in text


def test_a_quorum_of_half_counts_as_a_fixed_strategy():
    even = fixed_of("digits-cnn/even", *STEADY)
    half = [time_s / 2 for time_s in STEADY]
    text = rivals.table([(even, beside(even, **{QUORUMS: STEADY, rivals.HALF: half}))])
    assert "| digits-cnn/even | drop the last half: 2.40 s (1.88 to 2.92) | 2.00 (2.00" in text


def test_runs_are_at_most_as_long_as_those_of_the_fixed_strategies():
    (cell,) = cells(["digits-cnn/even"])
    assert rivals.cell_of(fixed_of(cell.name, *STEADY)).limit_s == pytest.approx(3.0 * 4.8)
    with pytest.raises(ConfigError, match="digits-cnn/even: BSP is not recorded; measure"):
        rivals.cell_of(Outcome(cell, ORIGIN))


def test_the_forgotten_results_are_the_missing_ones(tmp_path):
    even = fixed_of("digits-cnn/even", *STEADY)
    known = beside(even, **{QUORUMS: STEADY, "SpecSync": STEADY})
    rivals.forget(known, [QUORUMS], tmp_path)
    left = read(rivals.cell_of(even), tmp_path)
    assert [each.name for each in left.strategies] == ["SpecSync"]
    assert [each.name for each in left.missing] == [
        "adaptive, quorums",
        "adaptive, stale",
        "Sync-Switch",
        "AdaComm",
        "drop the last half",
    ]


def test_only_sgd_is_measured_with_stale_gradients():
    names = [
        [each.name for each in rivals.cell_of(fixed_of(f"{task}/even", *STEADY)).strategies()]
        for task in ("digits-cnn", "char-gpt")
    ]
    assert "adaptive, stale" in names[0]
    assert names[1] == [name for name in names[0] if name != "adaptive, stale"]


def test_a_cell_without_fixed_strategies_is_an_error_that_says_what_to_run(capsys):
    assert rivals.main(["--record", "--cells", "fashion-mnist-cnn/moving"]) == 2
    assert "--record --missing --cells fashion-mnist-cnn/moving" in capsys.readouterr().err


def test_results_are_forgotten_only_to_be_measured_anew(capsys):
    with pytest.raises(SystemExit) as ended:
        rivals.main(["--again", "SpecSync"])
    assert ended.value.code == 2
    assert "needs --record" in capsys.readouterr().err


@pytest.mark.parametrize("command", [rivals, fresh])
def test_results_are_forgotten_only_if_they_are_measured_anew(capsys, command):
    with pytest.raises(SystemExit) as ended:
        command.main(["--again", QUORUMS])
    assert ended.value.code == 2
    assert "it needs --record" in capsys.readouterr().err
