"""Wrappers of a rule: a warm-up, fewer decisions, a substitute rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from outpace.predict.interface import Wait
from outpace.predict.rules.baselines import Fixed
from outpace.predict.rules.wrappers import Fallback

ROW, ALL = np.array([1.0, 2.0]), np.zeros(2, dtype=bool)


class Counting:
    """A rule whose n-th decision waits for n workers; fails at the given decisions."""

    def __init__(self, fails: str = "") -> None:
        self.decided = self.observed = 0
        self.fails = fails

    def begin(self):
        self.decided += 1
        if self.fails == "begin" and self.decided == 2:
            raise RuntimeError("no such thing")
        return Wait(count=self.decided, again_s=1.0 if self.fails == "review" else np.inf)

    def review(self, arrived, elapsed_s):
        raise ZeroDivisionError("a review")

    def observe(self, seconds, censored, ended_s):
        self.observed += 1
        if self.fails == "observe" and self.observed == 2:
            raise ValueError("a row")


def counts(rule, iterations):
    found = []
    for _ in range(iterations):
        found.append(rule.begin().count)
        rule.observe(ROW, ALL, 2.0)
    return found


@pytest.mark.parametrize(("fails", "until"), [("begin", 1), ("observe", 2)])
def test_a_rule_that_fails_is_replaced_for_good_and_that_is_said_once(fails, until):
    said, other = [], Counting()
    rule = Fallback(Counting(fails), Fixed(Wait(count=99)), say=said.append)
    assert counts(rule, 5) == list(range(1, until + 1)) + [99] * (5 - until)
    assert len(said) == 1
    assert "last iterations: it failed: " in said[0]
    assert other.decided == 0


def test_a_rule_that_fails_in_an_iteration_is_replaced_in_it():
    said: list[str] = []
    rule = Fallback(Counting("review"), Fixed(Wait(count=99)), say=said.append)
    assert rule.begin().again_s == 1.0
    assert rule.review(ROW, 2.0).count == 99
    assert len(said) == 1


def test_a_rule_that_is_late_three_iterations_running_is_replaced():
    said: list[str] = []
    # The clock is read before and after: what was asked took so many seconds. The first
    # gradient of every iteration comes after 1 s.
    took = [0, 0.1, 2, 0.1, 2, 0.1, 0, 0.1, 2, 0.1, 2, 0.1, 2]
    clock = itertools.chain.from_iterable((100.0 * i, 100.0 * i + t) for i, t in enumerate(took))
    times = iter(list(clock))
    rule = Fallback(Counting(), Fixed(Wait(count=99)), say=said.append, clock=lambda: next(times))
    assert counts(rule, 9) == [1, 2, 3, 4, 5, 6, 7, 99, 99]
    assert said == [
        "the cut-off rule is replaced by the rule of the last iterations: 3 iterations in a row "
        "it was not ready when the first gradient came; the last time it took 2100 ms"
    ]
