"""Count, deadline and both, against brute force; what Ω per iteration and per run ask for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.predict.rules.decisions import (
    Objective,
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


objectives = st.sampled_from([Objective(), Objective("run", 7.0, 4.0), Objective("run", 1.0, 3.0)])


def score(draws, goal, count=math.inf, until=math.inf):
    """The mean over the draws of how each of them ends."""
    total = 0.0
    for row in draws:
        n = int(min(count, len(row)))
        end = max(row[0], min(row[n - 1], until))
        total += float(goal.score(min(n, int((row <= end).sum())), end))
    return total / len(draws)


@given(draws_of_workers(), objectives, st.integers(0, 3))
def test_no_count_beyond_what_has_come_is_better(draws, goal, beyond):
    beyond = min(beyond, draws.shape[1] - 1)
    plan = best_count(draws, goal, beyond=beyond)
    scores = [score(draws, goal, count=c) for c in range(beyond + 1, draws.shape[1] + 1)]
    assert plan.count > beyond
    assert plan.score == pytest.approx(max(scores))
    assert score(draws, goal, count=plan.count) == pytest.approx(plan.score)


@given(draws_of_workers(), objectives, st.floats(0, 5))
def test_no_deadline_that_has_not_passed_is_better(draws, goal, after):
    plan = best_deadline(draws, goal, after_s=after)
    times = draws[draws > after]
    scores = [score(draws, goal, until=s) for s in times]
    assert plan.score == pytest.approx(max(scores, default=-math.inf))
    if len(times):
        assert plan.until_s > after
        assert score(draws, goal, until=plan.until_s) == pytest.approx(plan.score)


@given(draws_of_workers(), objectives)
def test_both_together_score_what_they_say_and_no_less_than_either(draws, goal):
    plan = best_count_or_deadline(draws, goal)
    assert score(draws, goal, plan.count, plan.until_s) == pytest.approx(plan.score)
    either = best_count(draws, goal).score, best_deadline(draws, goal).score
    assert plan.score >= max(either) - 1e-9 * abs(plan.score)


def test_a_deadline_is_rounded_up_and_a_round_one_stays_as_it_is():
    assert settled(1.23456789) == pytest.approx(1.23457, abs=1e-12)
    assert settled(0.0123456123) == pytest.approx(0.0123457, abs=1e-12)
    for time_s in (0.0, 2.5, 0.1 + 0.2, math.inf):
        assert settled(time_s) == time_s


@pytest.mark.parametrize("rounding", [-1e-15, 0.0, 1e-15])
def test_of_counts_whose_scores_differ_by_rounding_alone_it_takes_the_first(rounding):
    draws = np.array([[0.1, 0.2 * (1.0 + rounding)]])  # 1 / 0.1 = 2 / 0.2
    assert best_count(draws, Objective()).count == 1


def test_both_together_can_be_better_than_either():
    # All early, or one early and the others late: a count stops the one, a deadline the other.
    draws = np.array([[1.0, 1.0, 1.0, 1.0, 9.0], [2.0, 2.0, 9.0, 9.0, 9.0]])
    plan = best_count_or_deadline(draws, Objective())
    assert plan.score == pytest.approx((4 / 1 + 2 / 2) / 2)
    assert max(
        best_count(draws, Objective()).score,
        best_deadline(draws, Objective()).score,
    ) < (plan.score - 0.1)


def test_a_worker_that_never_comes_is_not_waited_for():
    draws = np.array([[1.0, 1.1, math.inf], [1.0, 1.2, math.inf]])
    for goal in (Objective(), Objective("run", 2.0, 1.0)):
        assert best_count(draws, goal).count == 2
        assert best_deadline(draws, goal).until_s <= 1.2
        assert best_count_or_deadline(draws, goal).score > -math.inf


def test_the_rate_of_the_run_is_what_its_objective_reaches():
    """By turns all of 10 after 1 s, or 2 after 1 s and the others after 4 s."""
    easy, hard = np.array([[1.0] * 10]), np.array([[1.0] * 2 + [4.0] * 8])

    def rate(goal):
        n = s = 0.0
        for draws in [easy, hard] * 50:
            plan = best_count(draws, goal)
            goal.observe(int(plan.count), float(draws[0, int(plan.count) - 1]))
            n, s = n + plan.count, s + draws[0, int(plan.count) - 1]
        return n / s

    assert rate(Objective("iteration")) == pytest.approx(20 / 5)  # 10 / 4 s is above 2 / 1 s
    assert rate(Objective("run")) == pytest.approx(12 / 2, rel=0.03)
