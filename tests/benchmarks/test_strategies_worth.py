"""The worth of the gradients that count in an iteration, on clusters of the suite."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.strategies import worth
from benchmarks.strategies.suite import cells

COMPUTE = {"kind": "constant", "mean_s": 0.1, "slow": [{"workers": [0, 1, 2, 3], "factor": 2.0}]}


def cell_with(compute):
    (cell,) = cells(["digits-cnn/even"])
    return replace(cell, data={**cell.data, "compute": compute, "network": {}})


def test_the_worth_is_that_of_the_gradients_of_an_iteration_over_its_time():
    cell = cell_with(COMPUTE)
    # BSP has 16 gradients in 0.2 s: half of what 16 workers have that take 0.1 s each. A quorum of
    # 12 has 12 in 0.1 s, worth 12 B / (12 + B) in place of 16 B / (16 + B).
    assert worth.worths(cell, "BSP", 4.0) == pytest.approx([0.5] * 3, rel=0.01)
    expected = [12 / 16 * (16 + noise) / (12 + noise) for noise in worth.NOISE]
    assert worth.worths(cell, "quorum 12", 4.0) == pytest.approx(expected, rel=0.03)
    # All wait for the slow ones at first, then those are left out.
    assert worth.worths(cell, worth.ADAPTIVE, 20.0) == pytest.approx(expected, rel=0.05)


def test_the_limit_knows_all_run_times_and_ends_each_iteration_at_the_best_number():
    # With 12 gradients in 0.1 s, or 16 in 0.2 s, 12 are better for each noise scale.
    expected = [12 / 16 * (16 + noise) / (12 + noise) for noise in worth.NOISE]
    assert worth.limits(cell_with(COMPUTE), 8.0) == pytest.approx(expected, rel=0.02)
    # With 0.3 s in place of 0.1 s for one worker, and 0.101 s for the others: these 15.
    slow = [{"workers": [0], "factor": 3.0}, {"workers": list(range(1, 16)), "factor": 1.01}]
    cell = cell_with({"kind": "constant", "mean_s": 0.1, "slow": slow})
    expected = [15 / 16 * (16 + noise) / (15 + noise) / 1.01 for noise in worth.NOISE]
    assert worth.limits(cell, 8.0) == pytest.approx(expected, rel=0.02)


def test_the_command_prints_a_table(capsys):
    assert worth.main(["--quick"]) == 0
    head, _, even, slow = capsys.readouterr().out.splitlines()
    assert head.startswith("| B = 2, 16, 64 | adaptive, quorums | adaptive, late workers finish |")
    assert head.endswith("| run times known beforehand |")
    assert even.startswith("| even | ")
    assert slow.startswith("| slow-workers | ")
