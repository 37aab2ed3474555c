"""Statistics of a table: order, throughput, slowness; by hand and against plain loops."""

from __future__ import annotations

import pytest
from tests.support.tables import table

from outpace.predict.recorded.statistics import SLOW, ordered, slowness, throughput

NAN = float("nan")


def test_throughput_by_hand():
    # Ω of the iterations: 1, 2/2, 3/6 and 1/2, 2/4, 3/4
    found = throughput(ordered(table([[2.0, 1.0, 6.0], [4.0, 4.0, 2.0]])))
    assert found.rate.tolist() == [0.75, 0.75, 0.625]
    assert found.best == 1
    assert found.all == 0.625
    assert found.gain == pytest.approx(0.2, abs=1e-15)
    assert found.hindsight == (1.0 + 0.75) / 2


def test_counts_beyond_a_cut_off_are_bounds_and_are_never_the_best():
    cut = [[False, False, True], [False, True, True]]
    found = throughput(ordered(table([[1.0, 2.0, 2.0], [1.0, 1.5, 1.5]], censored=cut)))
    assert found.exact.tolist() == [True, False, False]
    assert found.best == 1
    assert found.hindsight is None
    assert found.gain is None  # 1 against at most 1.75 gradients per second


def test_a_gain_over_a_bound_is_a_gain():
    found = throughput(ordered(table([[1.0, 1.0, 4.0]], censored=[[False, False, True]])))
    assert found.best == 2
    assert found.gain == 2.0 / 0.75 - 1


def test_nothing_is_known_if_the_fastest_was_cut_off():
    found = throughput(ordered(table([[1.0, 2.0]], censored=[[True, False]])))
    assert (found.best, found.gain) == (0, None)


def test_a_worker_that_was_not_there_is_not_waited_for():
    seconds = [[1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, NAN]]
    found = throughput(ordered(table(seconds)))
    assert found.rate.tolist() == [1.0, 1.0, 0.75]
    rarely = [[1.0, 2.0, 4.0], [1.0, 2.0, NAN], [1.0, 2.0, NAN]]
    assert throughput(ordered(table(rarely))).rate.tolist() == [1.0, 1.0]


def test_slowness_by_hand():
    fast, slow = 1.0, 1.01 * SLOW
    times = [[fast] * 4 + [x] for x in (slow, slow, fast, slow)]
    found = slowness(table(times))
    assert found.share.tolist() == [0, 0, 0, 0, 0.75]
    assert sorted(found.runs.tolist()) == [1, 2]
    assert found.longest.tolist() == [0, 0, 0, 0, 2]


def test_most_of_a_cluster_may_be_slow_at_once():
    found = slowness(table([[1.0, 1.0, 3.0, 3.0, 3.0]]))
    assert found.share.tolist() == [0, 0, 1, 1, 1]


def test_a_worker_that_was_cut_off_was_slow_and_one_that_was_not_there_was_not():
    found = slowness(table([[1.0, 1.0], [1.0, NAN]], censored=[[False, True], [False, False]]))
    assert found.share.tolist() == [0, 1.0]
    assert found.runs.tolist() == [1]
