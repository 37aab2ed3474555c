"""Intervals over seeds, compared with tables and closed forms, also with missed targets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.support.estimates import (
    NOTHING,
    Estimate,
    TimeTo,
    mean_of,
    mean_time,
    next_of,
    ratio_of,
)

STUDENT = {2: 12.706, 3: 4.303, 5: 2.776, 10: 2.262}  # two-sided 5 %, n - 1 degrees of freedom


def reached(*times):
    return [TimeTo(time_s, True) for time_s in times]


@pytest.mark.parametrize("n", STUDENT)
def test_the_interval_of_a_mean_is_students(n):
    # The values 1 ... n have the mean (n + 1) / 2 and the variance n(n + 1) / 12.
    reach = STUDENT[n] * math.sqrt((n + 1) / 12)
    found = mean_of(list(range(1, n + 1)))
    assert found.mean == (n + 1) / 2
    assert found.high - found.mean == pytest.approx(reach, rel=3e-4)
    assert found.mean - found.low == pytest.approx(reach, rel=3e-4)


def test_intervals_cover_the_true_mean_in_95_per_cent_of_all_samples():
    samples = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 5))
    covered = sum(not mean_of(list(sample)).excludes(3.0) for sample in samples)
    # The standard error of the share is sqrt(0.95 * 0.05 / 4000) = 0.34 %; four of them.
    assert covered / 4000 == pytest.approx(0.95, abs=0.014)


def test_the_interval_of_a_share_stays_between_0_and_1():
    # Mean 0.95, standard deviation 0.05 √2, standard error 0.05: 0.95 ± 0.635.
    found = mean_of([0.9, 1.0]).within(0.0, 1.0)
    assert (found.mean, found.high) == (pytest.approx(0.95), 1.0)
    assert found.low == pytest.approx(0.95 - STUDENT[2] * 0.05, rel=1e-4)


def test_one_seed_has_no_interval_and_excludes_nothing():
    assert mean_of([7.0]) == Estimate(7.0, None, None)
    assert not mean_of([7.0]).excludes(0.0)
    assert mean_of([]) == NOTHING


def test_a_ratio_is_formed_seed_by_seed():
    # Seeds differ by a factor of 4; within each seed the variant takes exactly half the time.
    found = ratio_of(reached(5, 10, 20), reached(10, 20, 40))
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.excludes(1.0)
    # Unpaired, the same times would say nothing: 11.7 s against 23.3 s, both +- 20 s or more.
    assert mean_time(reached(5, 10, 20)).high > 23.3


def test_runs_that_missed_the_target_give_bounds():
    times = [TimeTo(30.0, True), TimeTo(40.0, False)]  # the second one ended after 40 s
    found = mean_time(times)
    assert (found.mean, found.high) == (35.0, None)
    slower = ratio_of(times, reached(10, 10))
    assert slower.mean == pytest.approx(math.sqrt(3 * 4))
    assert slower.high is None
    sooner = ratio_of(reached(10, 10), times)
    assert sooner.mean == pytest.approx(1 / math.sqrt(3 * 4))
    assert sooner.low is None
    assert ratio_of(times, times) == NOTHING, "both missed it: the ratio may be anything"


def test_a_further_value_lies_in_the_interval_of_90_per_cent_of_all_samples():
    samples = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 6))
    found = [(next_of(list(sample[:5])), sample[5]) for sample in samples]
    covered = sum(each.low <= value <= each.high for each, value in found)
    assert covered / 4000 == pytest.approx(0.9, abs=4 * math.sqrt(0.9 * 0.1 / 4000))
    assert next_of([2.0]) == Estimate(2.0)
