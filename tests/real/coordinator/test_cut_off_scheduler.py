"""The scheduler of cut-offs, if time passes while the rule decides, as in a real run."""

from __future__ import annotations

import math
from collections import deque

import pytest

from outpace.predict.interface import Wait
from outpace.support.units import nanoseconds, seconds
from outpace.sync.messages import Close, Done, Lost, Rejoin
from outpace.sync.programs.cutoff import cut_off


class OutOfMessages(Exception):
    pass


class Place:
    """A scheduler's context: messages at given times, and a clock that the test can set."""

    def __init__(self, arrivals_s, reports=()):
        self.now = 0
        self._due = deque(
            (nanoseconds(at_s), Done(worker, 0, at_s, 1.0, True))
            for worker, at_s in enumerate(arrivals_s)
        )
        self._due.extend((nanoseconds(at_s), done) for at_s, done in reports)
        self.closed_s: list[tuple[float, list[int]]] = []
        self.stopped: list[tuple[str, int]] = []  # worker, iteration

    async def recv(self):
        return self._next(math.inf)

    async def recv_within(self, timeout_s):
        until = self.now + nanoseconds(timeout_s)
        if not self._due or self._due[0][0] > until:
            self.now = until
            return None
        return self._next(until)

    def _next(self, until):
        if not self._due:
            raise OutOfMessages
        at, message = self._due.popleft()
        assert at <= until
        self.now = max(self.now, at)
        return message

    def send(self, to, message):
        assert isinstance(message, Close)
        if to.startswith("server"):
            self.closed_s.append((seconds(self.now), message.workers))
        else:
            self.stopped.append((to, message.iteration))

    async def decide(self, decision):
        return decision()

    def iteration_closed(self, *_):
        pass


class Thinking:
    """A rule that is called again after two gradients, and then takes 0.5 s to answer."""

    def __init__(self, place, answers):
        self._place, self._answers = place, deque(answers)
        self.shown: list[tuple[int, float]] = []  # number of gradients that had come, and time

    def begin(self):
        return Wait(again_count=2)

    def review(self, arrived, elapsed_s):
        self.shown.append((int((arrived >= 0).sum()), elapsed_s))
        self._place.now += nanoseconds(0.5)
        return self._answers.popleft()

    def observe(self, *_):
        pass


@pytest.mark.parametrize(
    ("arrivals_s", "answers", "second", "end"),
    [
        ([1.0, 1.1, 9.0], [Wait(again_s=1.3), Wait(count=2)], (2, 1.6), (2.1, [0, 1])),
        ([1.0, 1.1, 1.4, 9.0], [Wait(again_s=1.3), Wait(count=3)], (3, 1.6), (2.1, [0, 1, 2])),
        # The scheduler does not wait for a time that had passed when the rule was called.
        ([1.0, 1.1, 1.8, 9.0], [Wait(again_s=1.1), Wait(count=3)], (3, 1.8), (2.3, [0, 1, 2])),
    ],
)
def test_what_came_while_the_rule_thought_is_shown_to_it_before_it_thinks_again(
    arrivals_s, answers, second, end
):
    place = Place(arrivals_s)
    rule = Thinking(place, answers)
    with pytest.raises(OutOfMessages):
        cut_off(place, rule, len(arrivals_s), 1).send(None)
    assert rule.shown == [(2, 1.1), second]
    ended_s, counting = place.closed_s[0]
    assert (ended_s, counting) == (pytest.approx(end[0]), end[1])


class Watching:
    """A rule that ends each iteration after the first gradient."""

    def __init__(self):
        self.observed: list[tuple[list[float], list[bool], float]] = []

    def begin(self):
        return Wait(count=1)

    def observe(self, seconds, censored, ended_s):
        self.observed.append((seconds.tolist(), censored.tolist(), ended_s))


@pytest.mark.parametrize(
    ("computed_s", "share", "observed_s", "is_bound"),
    [
        (1.5, 0.7, 1.0, True),
        (1.5, math.nan, 1.0, True),  # a step of a script, whose usual time is unknown
        (1.5, 1.0, 1.6, False),  # it finished late, and took 0.1 s for messages, as worker 0
    ],
)
def test_the_bound_of_a_worker_that_was_cut_off_is_the_cut_off(
    computed_s, share, observed_s, is_bound
):
    reports = [(1.7, Done(1, 0, computed_s, share, finished=share == 1.0))]
    place, rule = Place([], [(1.0, Done(0, 0, 0.9, 1.0, finished=True)), *reports]), Watching()
    with pytest.raises(OutOfMessages):
        cut_off(place, rule, 2, 1).send(None)
    (((first_s, second_s), censored, ended_s),) = rule.observed
    assert (first_s, ended_s) == (1.0, 1.0)
    assert (second_s, censored) == (pytest.approx(observed_s), [False, is_bound])


def test_the_delay_of_the_scheduler_is_no_part_of_the_cut_off():
    class Late(Place):
        async def recv_within(self, timeout_s):
            message = await super().recv_within(timeout_s)
            if message is None and timeout_s > 0:
                self.now += nanoseconds(0.25)
            return message

    report = 1.9, Done(1, 0, 1.7, 0.7, finished=False)
    place, rule = Late([], [(1.0, Done(0, 0, 0.9, 1.0, finished=True)), report]), Watching()
    rule.begin = lambda: Wait(until_s=1.5)
    with pytest.raises(OutOfMessages):
        cut_off(place, rule, 2, 1).send(None)
    assert rule.observed == [([1.0, 1.5], [False, True], 1.75)]


def test_a_worker_that_is_lost_is_waited_for_only_while_it_may_still_come():
    def came(worker, iteration, at_s):
        return at_s, Done(worker, iteration, 1.0, 1.0, finished=True)

    messages = [
        # Worker 1 dies. Servers have its push of iteration 0, but its report is lost.
        *(came(0, 0, 1.0), (1.1, Lost(1, stays=True)), (1.5, Rejoin(1, 1))),  # ends iteration 0
        # ends iteration 1: there is no other worker
        *((1.7, Lost(0, stays=False)), came(1, 1, 2.0)),
        *((2.2, Rejoin(0, 2)), came(0, 2, 3.0), came(1, 2, 3.5)),
    ]
    place, rule = Place([], messages), Watching()
    rule.begin = lambda: Wait()
    with pytest.raises(OutOfMessages):
        cut_off(place, rule, 2, 1).send(None)
    assert place.closed_s == [(1.5, [0]), (2.0, [1]), (3.5, [0, 1])]
