"""The coordinator of gossip, with late messages: no worker is in two averages, all are served.

Messages of a worker to the coordinator, and back, keep their order; otherwise anything may happen
before anything else, and workers leave, or are lost, at any time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from fractions import Fraction

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.pairs import Pairs
from outpace.real.net.peer_messages import (
    GroupBroken,
    StartAverage,
    TakePart,
)
from outpace.sync.messages import Leave, worker_name
from outpace.sync.peers.gossip import partner_of

SEED = 7
picks = st.integers(0, 10**6)


class Worker:
    def __init__(self, number: int) -> None:
        self.number, self.name = number, worker_name(number)
        self.to, self.said = deque(), deque()  # on their way, from the coordinator and to it
        self.seeks = None  # the iteration during which it averages
        self.meet = None
        self.left = self.lost = False
        self.model = Fraction(7**number)

    @property
    def here(self):
        return not self.left and not self.lost


class Gossip(RuleBasedStateMachine):
    @initialize(workers=st.integers(2, 5))
    def begin(self, workers):
        self.workers = [Worker(n) for n in range(workers)]
        by_name = {worker.name: worker for worker in self.workers}
        self.pairs = Pairs(
            Kernel(), list(by_name), SEED, lambda name, message: by_name[name].to.append(message)
        )
        self.iteration = 0
        self.sent = defaultdict(dict)  # number -> the values that each of them gives
        self.met = defaultdict(set)  # number -> the workers that have begun it
        self.done = defaultdict(set)  # and the workers that have the average
        self.members = {}

    def one(self, pick, able):
        found = [worker for worker in self.workers if able(worker)]
        return found[pick % len(found)] if found else None

    # -- what workers do -------------------------------------------------------------------

    @rule(pick=picks)
    def ask(self, pick):
        if worker := self.one(pick, lambda worker: worker.here and worker.seeks is None):
            worker.seeks = self.iteration
            worker.said.append(TakePart("pair", self.iteration))
            self.iteration += 1

    @rule(pick=picks)
    def look(self, pick):
        """Let a worker read the next message of the coordinator."""
        worker = self.one(pick, lambda worker: worker.to)
        if worker is None:
            return
        message = worker.to.popleft()
        if not worker.here:
            return
        if isinstance(message, StartAverage):
            assert worker.meet is None  # never two at a time
            worker.meet = message
            self.met[message.number].add(worker.number)
            self.members[message.number] = {message.seeker, message.partner}
            self.sent[message.number][worker.number] = worker.model
            assert worker.number in self.members[message.number]
            assert message.seeker != message.partner
        elif message.number is None:
            assert worker.seeks is not None
            assert not any(other.here for other in self.workers if other is not worker)
            worker.seeks = None
        elif worker.meet is not None and worker.meet.number == message.number:
            sought = worker.meet.seeker == worker.number
            self.over(worker)
            if sought:
                worker.said.append(TakePart("pair", worker.seeks))

    @rule(pick=picks)
    def average(self, pick):
        """Let a worker have its average, since both have begun."""
        worker = self.one(pick, lambda worker: worker.here and self.may_average(worker))
        if worker is None:
            return
        number = worker.meet.number
        (other,) = self.members[number] - {worker.number}
        mine, theirs = self.sent[number][worker.number], self.sent[number][other]
        self.done[number].add(worker.number)
        worker.model += (theirs - mine) / 2
        if worker.meet.seeker == worker.number:
            worker.seeks = None
        self.over(worker)

    def may_average(self, worker):
        return worker.meet is not None and len(self.met[worker.meet.number]) == 2

    def over(self, worker):
        worker.said.append(TakePart("averaged", worker.meet.number))
        worker.meet = None

    @rule(pick=picks)
    def leave(self, pick):
        worker = self.one(pick, lambda worker: worker.here and worker.meet is None)
        if worker is not None and pick % 4 == 0:
            worker.left = True
            worker.said.append(Leave(worker.number))

    # -- messages to the coordinator --------------------------------------------------------

    @rule(pick=picks)
    def hear(self, pick):
        if worker := self.one(pick, lambda worker: worker.said):
            self.take(worker)

    def take(self, worker):
        assert self.pairs.take(worker.name, worker.said.popleft())

    @rule(pick=picks, is_heard=st.booleans())
    def lose(self, pick, is_heard):
        """A loss is noticed before or after the last messages of the worker are read."""
        worker = self.one(pick, lambda worker: worker.here)
        if worker is not None and pick % 8 == 0:
            worker.lost = True
            while is_heard and worker.said:
                self.take(worker)
            worker.said.clear()
            self.pairs.lose(worker.name)

    # -- invariants ----------------------------------------------------------------

    @invariant()
    def an_average_comes_about_on_both_sides_unless_one_is_lost(self):
        for number, done in self.done.items():
            members = [self.workers[n] for n in self.members[number]]
            for worker in members:
                has_it_yet_to_come = worker.meet is not None and worker.meet.number == number
                is_done = worker.number in done
                assert is_done or has_it_yet_to_come or any(member.lost for member in members)

    def teardown(self):
        """Check that all workers are served when no more requests come."""
        if not hasattr(self, "workers"):
            return
        while self.is_busy():
            self.hear(0)
            self.look(0)
            self.average(0)
        for worker in self.workers:
            if worker.here:
                assert worker.seeks is None
                assert worker.meet is None
        if not any(worker.lost for worker in self.workers):
            total = sum(worker.model for worker in self.workers)
            assert total == sum(Fraction(7**worker.number) for worker in self.workers)

    def is_busy(self):
        return any(
            worker.to or worker.said or (worker.here and self.may_average(worker))
            for worker in self.workers
        )


TestGossip = Gossip.TestCase


class Told:
    def __init__(self, workers: int) -> None:
        self.kernel = Kernel()
        self.said = []
        names = [worker_name(n) for n in range(workers)]
        self.pairs = Pairs(
            self.kernel, names, SEED, lambda name, message: self.said.append(message)
        )

    def wait(self):
        async def sleep():
            await self.kernel.sleep(60)

        self.kernel.spawn(sleep())
        try:
            self.kernel.run()
        finally:
            self.kernel.close()

    @property
    def meets(self):
        """New results, once for each average."""
        found = [
            (message.seeker, message.partner)
            for message in self.said
            if isinstance(message, StartAverage)
        ]
        assert found[::2] == found[1::2]  # both are told
        self.said.clear()
        return found[::2]


def beside(seeker, partner, workers):
    """Return an iteration in which this partner is drawn."""
    others = [n for n in range(workers) if n != seeker]
    return next(n for n in range(1000) if partner_of(seeker, n, others, SEED) == partner)


def test_who_cannot_reach_a_partner_that_is_still_there_ends_the_run():
    told = Told(2)
    told.pairs.take("worker-0", TakePart("pair", 0))
    told.pairs.take("worker-0", GroupBroken(0, "worker-1: no route", average=0))
    with pytest.raises(RunError, match="worker-0 cannot reach worker-1: no route"):
        told.wait()


def test_an_action_between_averages_comes_after_those_under_way_and_before_the_next():
    told = Told(4)
    told.pairs.take("worker-0", TakePart("pair", beside(0, 1, 4)))
    told.pairs.when_idle(lambda: told.said.append("now"))
    told.pairs.take("worker-2", TakePart("pair", beside(2, 3, 4)))
    assert told.meets == [(0, 1)]  # the other one waits, though its workers are free
    told.pairs.take("worker-0", TakePart("averaged", 0))
    assert told.said == []
    told.pairs.take("worker-1", TakePart("averaged", 0))
    assert told.said[0] == "now"
    assert told.said[1:] == [StartAverage(1, 2, 3, 0)] * 2
