"""A worker that is slow for a while: the beginning and the cost, in runs with known answers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import outpace
from outpace.predict.slow import slow_units
from outpace.report.explaining.charging import shared


@pytest.mark.parametrize("workers", [4, 8, 16])
def test_begin_and_cost_of_random_bursts(workers):
    """The true cost is how much shorter the slowest worker's times are without the burst."""
    rng = np.random.default_rng(7)
    runs, begins, costs = 60, 0, 0
    for _ in range(runs):
        seconds = 0.06 * rng.lognormal(0, 0.05, (100, workers))
        undisturbed = seconds.max(axis=1).sum()
        worker, length = int(rng.integers(workers)), int(rng.integers(8, 41))
        begin = int(rng.integers(0, 101 - length))
        seconds[begin : begin + length, worker] *= rng.uniform(1.5, 4)
        cost = seconds.max(axis=1).sum() - undisturbed
        found = slow_units(seconds)
        mine = found.of(worker)
        begins += bool(mine) and abs(mine[0].first - begin) <= 3
        charged = shared(seconds, found.excess)[:, worker].sum()
        costs += math.isclose(charged, cost, rel_tol=0.1)
    assert begins >= 0.95 * runs
    assert costs >= 0.95 * runs


def test_two_bursts_that_were_named_as_one_period_are_told_apart():
    seconds = 0.06 * np.random.default_rng(5).lognormal(0, 0.05, (100, 4))
    seconds[12:32, 1] *= 3
    seconds[60:90, 1] *= 3
    found = [(each.first, each.last) for each in slow_units(seconds).periods if each.unit == 1]
    assert found == [(12, 31), (60, 89)]


def test_a_burst_in_the_middle_of_a_run_is_explained_with_its_begin(tmp_path: Path):
    rng = np.random.default_rng(6)
    seconds = 0.06 * rng.lognormal(0, 0.05, (100, 4))
    undisturbed = seconds.max(axis=1).sum()
    seconds[30:45, 1] *= 3
    rows = [f"{w},{t},{seconds[t, w]:.17g}" for w in range(4) for t in range(100)]
    (tmp_path / "times.csv").write_text("\n".join(["worker,iteration,seconds", *rows]) + "\n")
    config = {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": 4,
        "servers": 1,
        "compute": {"kind": "trace", "path": str(tmp_path / "times.csv")},
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 100},
    }
    outpace.simulate(config, out=tmp_path / "run")
    (cause,) = outpace.explain(tmp_path / "run").causes
    assert (cause.worker, cause.periods[0].first, cause.periods[0].last) == (1, 30, 44)
    assert cause.lost_s == pytest.approx(seconds.max(axis=1).sum() - undisturbed, rel=0.1)
