"""The planner of checkpoints: when each part is requested, and the reaction to a missed one."""

from __future__ import annotations

import math

import pytest

from outpace.errors import ProtocolError
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, PartState, Take, Whole

SERVERS, SCRIPTS = ["server-0", "server-1"], ["worker-0", "worker-1"]


def takes(parts, number, clock=None):
    return [Take(part, number, clock) for part in parts]


def given_up(parts, number):
    return [GiveUp(part, number) for part in parts]


def test_all_parts_are_asked_for_and_the_last_one_makes_the_checkpoint_whole():
    planner = CutPlanner(SERVERS, exact=True, number=4)
    assert planner.begin() == takes(SERVERS, 5, 2)
    assert planner.begin() == []
    assert planner.saved(5, "server-1", 2) == []
    with pytest.raises(ProtocolError, match="it answers for checkpoint 5"):
        planner.saved(5, "server-1", 2)
    assert planner.is_open
    assert planner.saved(5, "server-0", 2) == [Whole(5)]
    assert not planner.is_open
    assert planner.begin(clock=9) == takes(SERVERS, 6, 9)
    assert planner.abandon() == given_up(SERVERS, 6)
    assert planner.saved(6, "server-0", 9) == []  # it comes too late
    planner.exact = False
    assert planner.begin() == takes(SERVERS, 7)


def test_later_clocks_are_asked_for_until_no_part_misses_them():
    planner = CutPlanner(SERVERS, exact=True)
    assert planner.begin() == takes(SERVERS, 1, 2)
    assert planner.saved(1, "server-0", 2) == []
    assert planner.missed(1, "server-1", 40) == given_up(SERVERS, 1)
    assert planner.is_due
    assert planner.begin(clock=3) == takes(SERVERS, 2, 44)
    assert planner.missed(1, "server-0", 41) == []  # the number of the abandoned checkpoint
    assert planner.missed(2, "server-0", 50) == given_up(SERVERS, 2)
    assert planner.begin() == takes(SERVERS, 3, 58)
    assert planner.saved(3, "server-0", 58) == []
    assert planner.saved(3, "server-1", 58) == [Whole(3)]
    assert planner.begin() == takes(SERVERS, 4, 62)  # half as far ahead


def test_all_are_saved_at_once_where_a_worker_is_ahead_of_a_server_each_time():
    planner = CutPlanner(SERVERS[:1], exact=True)
    for number in range(1, 13):
        (take,) = planner.begin()
        planner.missed(number, "server-0", take.clock)  # at that clock, but too far
    assert planner.begin() == takes(SERVERS[:1], 13)
    assert planner.saved(13, "server-0", 30) == [Whole(13)]
    assert planner.begin() == takes(SERVERS[:1], 14, 32)  # the lead has not grown


def test_workers_are_never_saved_at_different_results_however_often_they_miss_them():
    planner = CutPlanner(SCRIPTS, exact=True, tries=math.inf)
    for _ in range(100):
        (take, *_) = planner.begin()
        assert take.clock is not None
        planner.missed(take.number, "worker-0", take.clock)


@pytest.fixture
def planner():
    """Return a planner that requests the scripts first, and then the servers."""
    found = CutPlanner(SERVERS + SCRIPTS, exact=False)
    assert found.begin(later=SERVERS) == takes(SCRIPTS, 1)
    return found


def test_parts_that_come_later_are_asked_for_once_the_others_are_saved(planner):
    with pytest.raises(ProtocolError, match="was not asked for"):
        planner.saved(1, "server-0")
    assert planner.saved(1, "worker-0") == []
    assert planner.saved(1, "worker-1") == takes(SERVERS, 1)
    assert planner.saved(1, "server-0") == []
    with pytest.raises(ProtocolError, match="was not asked for"):
        planner.saved(1, "worker-0")
    assert planner.saved(1, "server-1") == [Whole(1)]


def test_a_script_that_leaves_before_it_is_saved_is_left_out(planner):
    planner.saved(1, "worker-0")
    assert planner.leave("worker-1") == takes(SERVERS, 1)


def test_a_script_that_is_saved_may_leave(planner):
    planner.saved(1, "worker-0")
    assert planner.leave("worker-0") == []
    assert planner.state("worker-0") is PartState.SAVED


def test_a_new_process_is_asked_again(planner):
    assert planner.replace("worker-1") == takes(["worker-1"], 1)
