"""Rules that only know the last iterations, and their use of times that were cut off."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Oracle, Rolling
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.planning import CutOffPlan, best_count
from outpace.predict.rules.settings import CutOffSettings

SLOW = np.array([1.0, 1.1, 1.2, 4.0])
EVEN = np.array([1.0, 1.1, 1.2, 1.3])
ALL = np.zeros(4, dtype=bool)


def window(*rows):
    """Return the draws that a decision is made from; the times of each row must be ascending."""
    found = []

    def decide(draws):
        found.append(draws.tolist())
        return CutOffPlan(0.0)

    rule = Rolling(3, decide)
    for seconds, censored in rows:
        rule.observe(np.array(seconds), np.array(censored, dtype=bool), max(seconds))
    rule.begin()
    return found[0]


def test_of_one_that_was_cut_off_its_last_time_counts_if_that_is_more():
    assert window(([1.0, 3.0], [0, 0]), ([1.5, 1.5], [0, 1])) == [[1.0, 3.0], [1.5, 3.0]]
    assert window(([1.0, 3.0], [0, 0]), ([4.0, 4.0], [0, 1])) == [[1.0, 3.0], [4.0, 4.0]]


def test_a_censored_time_is_not_remembered_as_the_last_one():
    rows = ([1.0, 2.0], [0, 0]), ([5.0, 5.0], [0, 1]), ([1.0, 1.0], [0, 1])
    assert window(*rows)[2] == [1.0, 2.0]


def test_one_that_was_not_there_never_comes():
    assert window(([1.0, math.nan], [0, 0])) == [[1.0, math.inf]]


@pytest.mark.parametrize(("iterations", "count"), [(1, 4), (20, 3)])
def test_the_count_that_was_best_over_the_window(iterations, count):
    rule = Rolling(iterations, best_count)
    for row in (SLOW, SLOW, EVEN):
        rule.observe(row, ALL, 4.0)
    assert rule.begin().count == count


def test_chen_waits_for_2051_of_2175():
    rule = make_rule(CutOffSettings("fixed", share=0.943), node=np.zeros(2175, dtype=int))
    assert rule.begin().count == 2051


def test_the_oracle_is_what_everything_is_measured_by():
    seconds = np.random.default_rng(0).lognormal(0, 0.5, (50, 30))
    rows = iter(seconds)
    done = replay(Oracle(lambda: next(rows)), seconds)
    assert done.of_oracle == 100
    assert (done.count == done.best_count).all()


def test_the_oracle_reckons_with_what_comes_on_top_of_computing():
    times = np.array([1.0, 2.1])
    oracle = Oracle(lambda: times)
    assert oracle.begin().count == 1
    oracle.observe(times + 1.0, np.zeros(2, dtype=bool), 3.1)
    assert oracle.begin().count == 2  # 2 / 3.1 is more than 1 / 2


def test_a_deadline_finds_out_that_the_whole_cluster_has_become_slow():
    seconds = 0.25 * np.random.default_rng(0).lognormal(0, 0.03, (60, 32))
    seconds[20:] *= 2.2
    found = replay(
        make_rule(CutOffSettings("last-5", warmup=5), node=np.zeros(32, dtype=int)), seconds
    ).count
    assert found[20] == 1  # the deadline has passed when the first one comes
    assert found[21] == 32
    assert found[22:].min() > 20
