"""The scheduler that has steps begun again, message by message."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from outpace.support.units import nanoseconds, seconds
from outpace.sync.messages import Began, Done, Leave, Lost, Push, Rejoin, Resync
from outpace.sync.programs.freshness import Speculation, Window
from outpace.sync.programs.speculating import _Scheduler


class OutOfMessages(Exception):
    pass


class Place:
    """A scheduler's context: messages that come at given times in seconds."""

    def __init__(self, *arrivals):
        self.now = 0
        self._due = deque((nanoseconds(at_s), message) for at_s, message in arrivals)
        self.sent = []  # (seconds, worker's name, message)
        self.refused = []

    async def recv(self):
        if not self._due:
            raise OutOfMessages
        at, message = self._due.popleft()
        self.now = max(self.now, at)
        return message

    async def recv_within(self, timeout_s):
        until = self.now + nanoseconds(timeout_s)
        if self._due and self._due[0][0] <= until:
            return await self.recv()
        self.now = until
        return None

    def send(self, to, message):
        self.sent.append((seconds(self.now), to, message))

    def refuse(self, message, error):
        self.refused.append((message, str(error)))


def scheduler(place, time_s=1.0, rate=0.5, workers=4):
    """Run a scheduler to the last message; two of four workers are enough."""
    program = _Scheduler(place, Speculation(Window(time_s, rate), 8), workers)
    with pytest.raises(OutOfMessages):
        asyncio.run(program.work())
    return program


def done(worker, iteration=1, *, finished=True):
    return Done(worker, iteration, 0.1, 1.0, finished)


def test_pushes_of_others_in_the_window_count_and_those_at_its_end():
    place = Place(
        (0.0, done(1)),  # before the window
        (0.0, Began(0, 7)),
        (0.5, done(2)),
        (1.0, done(3)),
        (1.0, done(1)),
    )
    scheduler(place)
    assert place.sent == [(1.0, "worker-0", Resync(7, 3))]


def test_pushes_without_a_gradient_do_not_count():
    place = Place((0.0, Began(0, 7)), (0.5, done(2)), (0.6, done(3, finished=False)))
    scheduler(place)
    assert place.sent == []


@pytest.mark.parametrize(
    "ended", [done(0, 7), Leave(0), Lost(0, False), Lost(0, True), Rejoin(0, 7)]
)
def test_a_window_ends_with_the_push_or_the_process_of_its_worker(ended):
    place = Place((0.0, Began(0, 7)), (0.5, done(2)), (0.6, done(3)), (0.7, ended))
    program = scheduler(place)
    assert place.sent == []
    assert place.refused == []
    assert 0 not in program._computing


def test_enough_is_a_share_of_the_workers_that_take_part():
    """One of two is enough, when two of four have left."""
    place = Place((0.0, Began(0, 7)), (0.1, Leave(2)), (0.2, Lost(3, False)), (0.5, done(1)))
    scheduler(place)
    assert place.sent == [(1.0, "worker-0", Resync(7, 1))]


def test_a_worker_that_comes_back_takes_part_again():
    place = Place((0.0, Lost(0, False)), (0.1, Lost(0, True)), (0.2, Rejoin(0, 3)))
    program = scheduler(place)
    assert program._live == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "message",
    [Began(9, 0), Began(0, 8), Done(9, 0, 0.1, 1.0, True), Rejoin(9, 0), Push(0, 7, 0)],
    ids=str,
)
def test_an_illegal_message_is_refused_and_changes_nothing(message):
    begun = (0.0, Began(0, 7)), (0.5, done(2)), (0.6, done(3))
    place = Place(*begun, (0.7, message))
    scheduler(place)
    assert [refused for refused, _ in place.refused] == [message]
    assert place.sent == [(1.0, "worker-0", Resync(7, 2))]


def test_windows_that_are_over_are_not_kept():
    """A worker may take many steps in the time of one window."""
    many = [(0.0, each) for n in range(1000) for each in (Began(0, n), done(0, n))]
    program = scheduler(Place(*many), time_s=1e6)
    assert len(program._ends) <= 4 * 4 + 1
