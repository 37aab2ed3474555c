"""Tests of the statistical test that names slow units."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from outpace.predict.slow import fast_units, pattern_of, slow_units


def noise(rng: np.random.Generator, iterations: int, units: int, cv: float = 0.05):
    """Return log-normal run times, with a factor that is common to the units of an iteration."""
    return rng.lognormal(0, cv, (iterations, units)) * rng.lognormal(0, 0.4, (iterations, 1))


def test_a_unit_1_2_times_slow_is_named_within_20_iterations():
    seconds = noise(np.random.default_rng(1), 20, 8)
    seconds[:, 3] *= 1.2
    (period,) = slow_units(seconds).periods
    assert (period.unit, period.first, period.last) == (3, 0, None)
    assert period.named < 12
    assert period.factor == pytest.approx(1.2, abs=0.06)


def test_two_slow_units_of_eight_do_not_hide_each_other():
    seconds = noise(np.random.default_rng(2), 20, 8)
    seconds[:, [1, 6]] *= 1.2
    assert [period.unit for period in slow_units(seconds).periods] == [1, 6]


def test_of_equal_units_none_is_named_whatever_the_law():
    """Ville's inequality: in at most 1 % of the tables, here in at most 2 of 96."""
    named = 0
    for seed, units in product(range(8), (2, 4, 16)):
        rng = np.random.default_rng([seed, units])
        for seconds in (
            1 + rng.exponential(0.1, (150, units)),
            rng.lognormal(0, 0.3, (150, units)),
            np.exp(0.1 / math.sqrt(3) * rng.standard_t(3, (150, units))),
            np.ones((150, units)),
        ):
            named += bool(slow_units(seconds).periods)
    assert named <= 2


def test_bursts_have_a_begin_and_an_end():
    seconds = noise(np.random.default_rng(4), 400, 8)
    seconds[100:140, 2] *= 2
    seconds[300:330, 2] *= 2
    periods = slow_units(seconds).periods
    assert [period.unit for period in periods] == [2, 2]
    ends = [(period.first, period.last) for period in periods]
    for found, expected in zip(ends, [(100, 139), (300, 329)], strict=True):
        assert found == pytest.approx(expected, abs=2)
    assert pattern_of(periods) == "bursts"
    assert pattern_of(periods[:1]) == "once"


def test_fast_units_are_found_where_most_are_slow():
    seconds = noise(np.random.default_rng(10), 40, 8)
    assert fast_units(seconds) is None
    seconds[:, [0, 1, 3, 4, 7]] *= 1.3
    found = fast_units(seconds)
    assert found is not None
    assert found[0] == (2, 5, 6)
    assert found[1] == pytest.approx(1.3, abs=0.05)
    seconds[:, 2] *= 1.3
    seconds[:, 5] *= 1.3
    seconds[:, 6] /= 1.3 * 1.3  # one fast unit
    assert fast_units(seconds)[0] == (6,)


def test_a_unit_that_becomes_slow_is_steady_from_then_on():
    seconds = noise(np.random.default_rng(5), 300, 4)
    seconds[200:, 1] *= 1.3
    (period,) = slow_units(seconds).periods
    assert period.first == pytest.approx(200, abs=5)
    assert pattern_of([period]) == "steady"


def test_small_differences_are_not_named_however_long_the_run():
    seconds = noise(np.random.default_rng(6), 1000, 4, cv=0.01)
    seconds[:, 2] *= 1.05
    assert not slow_units(seconds).periods


def test_chance_does_not_make_a_small_difference_a_short_slow_period():
    """A unit is 5 % slower, by chance more in some rows, also with heavy tails."""
    for seed in range(6):
        rng = np.random.default_rng([12, seed])
        seconds = np.exp(0.05 / math.sqrt(2) * rng.standard_t(4, (300, 16)))
        seconds[:, 3] *= 1.05
        assert not slow_units(seconds).periods


def test_units_that_are_absent_are_not_compared():
    seconds = noise(np.random.default_rng(7), 40, 5)
    seconds[:, 0] *= 1.4
    seconds[:, 4] = np.nan
    seconds[10, 1:] = np.nan
    assert [period.unit for period in slow_units(seconds).periods] == [0]
    assert not slow_units(seconds[:, :1]).periods
