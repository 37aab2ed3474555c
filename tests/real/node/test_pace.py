"""The times at which a worker sends the state of its script between checkpoints."""

from __future__ import annotations

import pytest

from outpace.real.script.script_saver import Pace


class Clock:
    """Seconds that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def copied(pace: Pace, clock: Clock, cost_s: float) -> None:
    with pace.measured():
        clock.now += cost_s


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.0004, 0.25), (0.01, 1.0)])
def test_copies_take_one_per_cent_of_the_time_at_most_and_are_four_a_second(cost_s, pause_s):
    clock = Clock()
    pace = Pace(reports=True, clock=clock)
    assert pace.is_due(0, None)
    copied(pace, clock, cost_s)
    clock.now += 0.99 * pause_s
    assert not pace.is_due(1, 0)
    clock.now += 0.02 * pause_s
    assert pace.is_due(2, 1)


def test_a_state_is_sent_after_a_worker_has_passed_over_iterations():
    clock = Clock()
    pace = Pace(reports=True, clock=clock)
    copied(pace, clock, 0.001)
    assert not pace.is_due(6, 5)
    assert pace.is_due(8, 6)


def test_no_state_is_sent_that_is_not_wanted_or_too_large():
    assert not Pace(reports=False).is_due(0, None)
    pace = Pace(reports=True)
    pace.reports = False
    assert not pace.is_due(0, None)
