"""Count, deadline and both, compared with brute force; decisions for Ω per iteration or run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.predict.rules.planning import (
    best_count,
    best_count_or_deadline,
    best_deadline,
    settled,
)


@st.composite
def draws_of_workers(draw):
    """Draws for one to six workers; within a draw no two workers come at the same time."""
    workers = draw(st.integers(1, 6))
    row = st.lists(st.integers(1, 40), min_size=workers, max_size=workers, unique=True)
    return np.array([sorted(times) for times in draw(st.lists(row, min_size=1, max_size=7))]) / 8


def score(draws, count=math.inf, until=math.inf):
    """Return the mean of Ω over the draws if they end in this way."""
    total = 0.0
    for row in draws:
        n = int(min(count, len(row)))
        end = max(row[0], min(row[n - 1], until))
        total += min(n, int((row <= end).sum())) / end
    return total / len(draws)


@given(draws_of_workers(), st.integers(0, 3))
def test_no_count_beyond_what_has_come_is_better(draws, beyond):
    beyond = min(beyond, draws.shape[1] - 1)
    plan = best_count(draws, beyond=beyond)
    scores = [score(draws, count=c) for c in range(beyond + 1, draws.shape[1] + 1)]
    assert plan.count > beyond
    assert plan.score == pytest.approx(max(scores))
    assert score(draws, count=plan.count) == pytest.approx(plan.score)


@given(draws_of_workers(), st.floats(0, 5))
def test_no_deadline_that_has_not_passed_is_better(draws, after):
    plan = best_deadline(draws, after_s=after)
    times = draws[draws > after]
    scores = [score(draws, until=s) for s in times]
    assert plan.score == pytest.approx(max(scores, default=-math.inf))
    if len(times):
        assert plan.until_s > after
        assert score(draws, until=plan.until_s) == pytest.approx(plan.score)


@given(draws_of_workers())
def test_both_together_score_what_they_say_and_no_less_than_either(draws):
    plan = best_count_or_deadline(draws)
    assert score(draws, plan.count, plan.until_s) == pytest.approx(plan.score)
    either = best_count(draws).score, best_deadline(draws).score
    assert plan.score >= max(either) - 1e-9 * abs(plan.score)


def test_a_deadline_is_rounded_up_and_a_round_one_stays_as_it_is():
    assert settled(1.23456789) == pytest.approx(1.23457, abs=1e-12)
    assert settled(0.0123456123) == pytest.approx(0.0123457, abs=1e-12)
    for time_s in (0.0, 2.5, 0.1 + 0.2, math.inf):
        assert settled(time_s) == time_s


@pytest.mark.parametrize("rounding", [-1e-15, 0.0, 1e-15])
def test_of_counts_whose_scores_differ_by_rounding_alone_it_takes_the_first(rounding):
    draws = np.array([[0.1, 0.2 * (1.0 + rounding)]])  # 1 / 0.1 = 2 / 0.2
    assert best_count(draws).count == 1


def test_a_worker_that_never_comes_is_not_waited_for():
    draws = np.array([[1.0, 1.1, math.inf], [1.0, 1.2, math.inf]])
    assert best_count(draws).count == 2
    assert best_deadline(draws).until_s <= 1.2
    assert best_count_or_deadline(draws).score > -math.inf
