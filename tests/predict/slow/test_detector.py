"""Tests of the test that names slow units."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.predict.slow import Detector, Rows, detected, fast, pattern_of, sudden
from outpace.predict.slow.evidence import Evidence


def noise(rng: np.random.Generator, iterations: int, units: int, cv: float = 0.05):
    """Return log-normal run times, with a factor that is common to the units of an iteration."""
    return rng.lognormal(0, cv, (iterations, units)) * rng.lognormal(0, 0.4, (iterations, 1))


def test_a_unit_1_2_times_slow_is_named_within_20_iterations():
    seconds = noise(np.random.default_rng(1), 20, 8)
    seconds[:, 3] *= 1.2
    (period,) = detected(seconds)
    assert (period.unit, period.first, period.last) == (3, 0, None)
    assert period.named < 12
    assert period.factor == pytest.approx(1.2, abs=0.06)


def test_two_slow_units_of_eight_do_not_hide_each_other():
    seconds = noise(np.random.default_rng(2), 20, 8)
    seconds[:, [1, 6]] *= 1.2
    assert [period.unit for period in detected(seconds)] == [1, 6]


def test_of_equal_units_none_is_named_whatever_the_law():
    """Ville's inequality: at most 1 % of the clusters, here none of 24."""
    rng = np.random.default_rng(3)
    for units in (2, 4, 16):
        for draw in (
            lambda shape: 1 + rng.exponential(0.1, shape),
            lambda shape: rng.lognormal(0, 0.3, shape),
            lambda shape: 1 + rng.pareto(3, shape),
            lambda shape: np.ones(shape),
        ):
            for _ in range(2):
                assert not detected(draw((150, units)))


def test_bursts_have_a_begin_and_an_end_and_a_pause_is_one_iteration():
    seconds = noise(np.random.default_rng(4), 400, 8)
    seconds[100:140, 2] *= 2
    seconds[300:330, 2] *= 2
    seconds[200, 5] *= 10
    periods = detected(seconds)
    assert [period.unit for period in periods] == [2, 2, 5]
    ends = [(period.first, period.last) for period in periods]
    for found, expected in zip(ends, [(100, 139), (300, 329), (200, 200)], strict=True):
        assert found == pytest.approx(expected, abs=2)
    assert pattern_of(periods[:2]) == "bursts"
    assert pattern_of(periods[2:]) == "once"


def test_tails_heavier_than_pareto_have_no_pauses():
    """Student's t with 3 degrees of freedom on the logarithm; a pause of 8 times is found."""
    rng = np.random.default_rng(8)
    for units in (4, 16):
        for _ in range(4):
            seconds = np.exp(0.1 / math.sqrt(3) * rng.standard_t(3, (300, units)))
            assert not [each for each in detected(seconds) if each.first == each.last]
    seconds = noise(rng, 300, 4, cv=0.1)
    seconds[250, 3] *= 8
    (period,) = detected(seconds)
    assert (period.unit, period.first, period.last) == (3, 250, 250)


def test_a_short_burst_of_one_of_four_is_named():
    for seed in range(3):
        seconds = noise(np.random.default_rng([11, seed]), 80, 4)
        seconds[24:28, 1] *= 3
        (period,) = detected(seconds)
        assert (period.unit, period.first, period.last) == (1, 24, 27)


def test_groups_of_times_that_are_too_long_do_not_hide_each_other():
    times = np.random.default_rng(9).lognormal(0, 0.1, 400)
    groups = np.arange(400) // 4
    times[[40, 41, 200, 201]] *= 20
    assert sudden(times, groups, [10, 50, 7], 0.01) == [10, 50]
    assert sudden(times, groups, [7], 0.01) == []


def test_fast_units_are_found_where_most_are_slow():
    seconds = noise(np.random.default_rng(10), 40, 8)
    assert fast(seconds) is None
    seconds[:, [0, 1, 3, 4, 7]] *= 1.3
    found = fast(seconds)
    assert found is not None
    assert found.units == (2, 5, 6)
    assert found.factor == pytest.approx(1.3, abs=0.05)
    seconds[:, 2] *= 1.3
    seconds[:, 5] *= 1.3
    seconds[:, 6] /= 1.3 * 1.3  # one fast unit
    assert fast(seconds).units == (6,)


def test_a_unit_that_becomes_slow_is_steady_from_then_on():
    seconds = noise(np.random.default_rng(5), 300, 4)
    seconds[200:, 1] *= 1.3
    (period,) = detected(seconds)
    assert period.first == pytest.approx(200, abs=5)
    assert pattern_of([period]) == "steady"


def test_small_differences_are_not_named_however_long_the_run():
    seconds = noise(np.random.default_rng(6), 1000, 4, cv=0.01)
    seconds[:, 2] *= 1.05
    assert not detected(seconds)


def test_units_that_are_absent_are_not_compared():
    seconds = noise(np.random.default_rng(7), 40, 5)
    seconds[:, 0] *= 1.4
    seconds[:, 4] = np.nan
    seconds[10, 1:] = np.nan
    assert [period.unit for period in detected(seconds)] == [0]
    assert not detected(seconds[:, :1])
    assert not Detector(3).step(0, np.full(3, np.nan))


def test_the_evidence_is_the_product_of_the_shares_of_a_unit():
    """Of two units, one is 1 higher in both rows; computed by hand for each level l.

    Each ratio is L = 2 e^l / (e^l + 1), and the evidence (p_1 L + p_2) L with p_1 = 1/2, p_2 = 1/4.
    """
    evidence = Evidence(2)
    for row in (3, 4):
        evidence.bet(np.array([1.0, 0.0]), np.ones(2, np.bool_), row)
    ratios = [2 * math.exp(level) / (math.exp(level) + 1) for level in (0.5, 1, 2)]
    expected = sum((0.5 * ratio + 0.25) * ratio for ratio in ratios) / 3
    assert evidence.of_units[0] == pytest.approx(expected)


def test_rows_are_complete_when_all_units_have_given_theirs():
    rows = Rows(2, most=2)

    def add(unit, iteration, time_s):
        given = rows.add(np.array([unit]), np.array([iteration]), np.array([time_s]))
        return [(number, row.tolist()) for number, row in given]

    assert add(0, 0, 1.0) == add(0, 1, 2.0) == []
    assert add(1, 1, 3.0) == [(1, [2.0, 3.0])]
    assert add(0, 2, 1.0) == []
    ((oldest, row),) = add(0, 3, 1.0)  # unit 1 has not given its first one, and 2 rows may wait
    assert (oldest, row[0]) == (0, 1.0)
    assert math.isnan(row[1])
