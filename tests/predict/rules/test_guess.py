"""Guesses of the hedge: run times of workers that were cut off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.predict.rules.baselines import Guess

NO_WORKER = np.zeros(5, dtype=bool)
ONE = np.array([False, False, False, False, True])
FAST = [1.0, 1.0, 1.0, 1.0]


def guessed(*rows):
    guess = Guess()
    return [guess.observe(np.array(s), c).tolist() for s, c in rows][-1]


def test_the_middle_of_the_longer_times_of_iterations_seen_whole_by_the_speed_of_this_one():
    whole = [([*FAST, slow], NO_WORKER) for slow in (3.0, 5.0, 9.0, 1.5)]
    # All are twice as slow now, and it was cut off at 4 s: 3, 5, 9 were longer, relatively.
    assert guessed(*whole, ([2.0, 2.0, 2.0, 2.0, 4.0], ONE))[4] == 2 * 5


def test_if_no_time_was_longer_it_takes_twice_as_long_in_the_middle():
    # P(more than x) = bound / x: half of the workers need more than twice the bound.
    assert guessed(([*FAST, 1.5], NO_WORKER), ([*FAST, 4.0], ONE))[4] == 8.0
    assert guessed(([*FAST, 4.0], ONE))[4] == 8.0


def test_its_own_last_time_counts_if_that_is_more_by_the_speed_of_this_iteration():
    rows = ([*FAST, 3.0], NO_WORKER), ([*FAST, 1.5], NO_WORKER), ([*FAST, 5.0], NO_WORKER)
    # 1.6 is exceeded by 3 and 5 (relatively), of which 5 is the middle; it had needed 8 at last.
    last = ([2.0, 2.0, 2.0, 2.0, 16.0], ~ONE & False)
    assert guessed(*rows, last, ([0.1, 0.1, 0.1, 0.1, 0.16], ONE))[4] == pytest.approx(0.8)


@given(st.lists(st.floats(0.1, 10), min_size=5, max_size=5), st.floats(0.1, 10))
def test_a_guess_is_at_least_the_bound_and_who_came_is_left_alone(times, end):
    cut = np.array(times) > end
    seen = np.where(cut, end, times)
    guess = Guess()
    guess.observe(np.array([*FAST, 4.0]), NO_WORKER)
    row = guess.observe(seen, cut)
    assert (row >= seen).all()
    assert (row[~cut] == seen[~cut]).all()
