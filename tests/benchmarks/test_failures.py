"""`python -m benchmarks.failures`: each part for seconds, and the table in the README."""

from __future__ import annotations

import pytest
from benchmarks.failures.__main__ import BENCHMARK
from benchmarks.rows import markdown, row


def test_a_row_is_the_median_with_the_extremes_or_the_interval_of_the_mean():
    """By hand: the mean is 0.02, its deviation 0.01, and t(0.975; 2) = 4.303, over sqrt(3)."""
    each = row("cost", [0.03, 0.01, 0.02], unit="%", goal=0.03, around="95 %")
    assert (each.median, each.met) == (0.02, True)
    assert (each.low, each.high) == pytest.approx((-0.00484, 0.04484), abs=1e-5)
    missed = row("back", [2.0, 9.0, 4.0], unit="s", goal=3.0)
    assert (missed.low, missed.high, missed.met) == (2.0, 9.0, False)
    assert markdown([vars(missed)])[-1] == (
        "| back | 4 s | 2 s to 9 s (extremes of 3) | at most 3 s, **missed** |"
    )
    assert row("share", [0.96], unit="%", goal=0.95, at_least=True).met


@pytest.mark.slow
def test_every_part_that_kills_in_one_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    parts = ["goodput", "recovery"]
    assert BENCHMARK.main([*parts, "--quick"]) in (0, 1)  # so short runs may miss goals
    printed = capsys.readouterr().out
    for what in (
        "| goodput with one kill of a worker each 2 s, SSP, 4 workers |",
        "| a killed server is back, a model of 1 MB |",
    ):
        assert what in printed


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        BENCHMARK.main(["nothing"])
    assert "parts are goodput, goodput-hpsgd, goodput-virtual, recovery" in capsys.readouterr().err
