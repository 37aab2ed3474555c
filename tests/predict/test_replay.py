"""The meaning of a Wait in a replay over recorded times; the figures of a replay."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.predict.interface import Wait
from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Fixed

TIMES = np.array([[1.0, 4.0, 2.0, 3.0], [2.0, 2.5, 8.0, 2.1]])


class Scripted:
    """Begins with the first wait, uses the next one at each call; notes its observations."""

    def __init__(self, *waits: Wait) -> None:
        self.waits = waits
        self.seen: list[tuple[float, list[float]]] = []
        self.observed: list[tuple[list[float], list[bool], float]] = []

    def begin(self):
        self.rest = list(self.waits)
        return self.rest.pop(0)

    def review(self, arrived, elapsed_s):
        self.seen.append((elapsed_s, arrived.tolist()))
        return self.rest.pop(0)

    def observe(self, seconds, censored, ended_s):
        self.observed.append((seconds.tolist(), censored.tolist(), ended_s))


def ends(wait: Wait) -> tuple[list[int], list[float]]:
    done = replay(Fixed(wait), TIMES)
    return done.count.tolist(), done.ended_s.tolist()


@pytest.mark.parametrize(
    ("wait", "counts", "seconds"),
    [
        (Wait(), [4, 4], [4.0, 8.0]),
        (Wait(count=2), [2, 2], [2.0, 2.1]),
        (Wait(count=99), [4, 4], [4.0, 8.0]),
        (Wait(count=0), [1, 1], [1.0, 2.0]),
        (Wait(until_s=2.3), [2, 2], [2.3, 2.3]),
        (Wait(until_s=0.5), [1, 1], [1.0, 2.0]),
        (Wait(until_s=5.0), [4, 3], [4.0, 5.0]),
        (Wait(count=3, until_s=2.3), [2, 2], [2.3, 2.3]),
        (Wait(count=3, until_s=6.0), [3, 3], [3.0, 2.5]),
    ],
)
def test_an_iteration_ends_at_the_first_of_count_and_time_but_with_one_and_at_the_last(
    wait, counts, seconds
):
    assert ends(wait) == (counts, seconds)


def test_asked_again_it_sees_who_has_come_and_nothing_else():
    rule = Scripted(Wait(again_s=2.5), Wait(again_count=3), Wait(count=2))
    done = replay(rule, TIMES[:1])
    nan = pytest.approx([1.0, math.nan, 2.0, math.nan], nan_ok=True)
    assert rule.seen == [(2.5, nan), (3.0, pytest.approx([1.0, math.nan, 2.0, 3.0], nan_ok=True))]
    assert (done.count[0], done.ended_s[0]) == (3, 3.0)  # a count that had been reached: now
    assert done.reviews[0] == 2


def test_those_cut_off_are_seen_as_long_as_they_computed_or_in_full():
    part, full = Scripted(Wait(count=2)), Scripted(Wait(count=2))
    replay(part, TIMES[:1], censored=True)
    replay(full, TIMES[:1], censored=False)
    assert part.observed == [([1.0, 2.0, 2.0, 2.0], [False, True, False, True], 2.0)]
    assert full.observed == [([1.0, 4.0, 2.0, 3.0], [False] * 4, 2.0)]


def test_a_worker_that_is_not_there_is_not_waited_for():
    times = np.array([[1.0, math.nan, 3.0]])
    rule = Scripted(Wait())
    done = replay(rule, times)
    assert (done.count[0], done.ended_s[0]) == (2, 3.0)
    assert rule.observed == [(pytest.approx([1.0, math.nan, 3.0], nan_ok=True), [False] * 3, 3.0)]


def test_the_figures_of_a_replay():
    done = replay(Fixed(Wait(count=3)), TIMES)
    assert done.throughput.tolist() == [3 / 3, 3 / 2.5]
    assert done.best_count.tolist() == [1, 3]  # the first of equals
    assert done.of_oracle == pytest.approx(100 * (1 + 1.2) / (1 + 1.2))
    assert done.gradients_per_s == pytest.approx(6 / 5.5)
    assert done.time_saved == pytest.approx(1 - (5.5 / 6) / (12 / 8))
    assert done.since(1).gradients_per_s == pytest.approx(3 / 2.5)
