"""The coordinator of gossip, whatever comes late: nobody is in two averages, everybody is served.

Messages of a worker to the coordinator, and back, keep their order; otherwise anything may happen
before anything else, and workers leave, or are lost, at any time. New processes take the places of
lost ones, with the models that others have kept; then the sum of all models is what it was.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from fractions import Fraction

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.averaging.pairs import Pairs
from outpace.real.net.peer_messages import (
    AverageEnded,
    AverageFailed,
    BeginAnew,
    CancelAverage,
    ConnectPair,
    NoPartnerLeft,
    SeekPartner,
    StartAverage,
)
from outpace.sync.messages import Leave, worker_name
from outpace.sync.peers.gossip import partner_of

SEED = 7
picks = st.integers(0, 10**6)


class Worker:
    def __init__(self, number: int) -> None:
        self.number, self.name = number, worker_name(number)
        self.to, self.said = deque(), deque()  # on their way, from the coordinator and to it
        self.seeks = None  # beside which iteration
        self.meet = None
        self.left = self.lost = False
        self.deaths = 0
        self.model = self.first  # None: it has not been given one
        self.kept = {}  # by number of a worker: its model after their average

    @property
    def first(self):
        return Fraction(7**self.number)

    @property
    def trains(self):
        return self.here and self.model is not None

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
        self.generation = 0
        self.sent = defaultdict(dict)  # number -> what each of them gives
        self.met = defaultdict(set)  # number -> who has begun it
        self.done = defaultdict(set)  # and who has the average
        self.members = {}

    def one(self, pick, able):
        found = [worker for worker in self.workers if able(worker)]
        return found[pick % len(found)] if found else None

    # -- what workers do -------------------------------------------------------------------

    @rule(pick=picks)
    def ask(self, pick):
        if worker := self.one(pick, lambda worker: worker.trains and worker.seeks is None):
            worker.seeks = self.iteration
            worker.said.append(SeekPartner(self.iteration))
            self.iteration += 1

    @rule(pick=picks)
    def look(self, pick):
        """One takes in the next of what the coordinator said."""
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
            for number in message.forget:
                worker.kept.pop(number, None)
            if message.gives and message.partner == worker.number:
                self.sent[message.number][worker.number] = worker.kept[message.seeker]
            else:
                self.sent[message.number][worker.number] = worker.model
            assert worker.number in self.members[message.number]
            assert message.seeker != message.partner
        elif isinstance(message, NoPartnerLeft):
            assert worker.seeks is not None
            others = [other for other in self.workers if other is not worker]
            assert not any(other.here and not other.deaths for other in others)
            worker.seeks = None
        elif isinstance(message, ConnectPair):
            assert message.worker != worker.number
        elif isinstance(message, BeginAnew):
            self.join(worker, worker.first)
        elif worker.meet is not None and worker.meet.number == message.number:
            sought = worker.meet.seeker == worker.number and not worker.meet.gives
            self.over(worker, has=False)
            if sought:
                worker.said.append(SeekPartner(worker.seeks))

    @rule(pick=picks)
    def average(self, pick):
        """One has it, since both have begun."""
        worker = self.one(pick, lambda worker: worker.here and self.may_average(worker))
        if worker is None:
            return
        number = worker.meet.number
        (other,) = self.members[number] - {worker.number}
        mine, theirs = self.sent[number][worker.number], self.sent[number][other]
        if worker.meet.gives:
            seeks = worker.meet.seeker == worker.number
            self.over(worker)
            if seeks:
                self.join(worker, theirs)
            return
        self.done[number].add(worker.number)
        worker.model += (theirs - mine) / 2
        worker.kept[other] = (mine + theirs) / 2
        if worker.meet.seeker == worker.number:
            worker.seeks = None
        self.over(worker)

    def join(self, worker, model):
        assert worker.model is None
        worker.model = model
        worker.said.append("it has a model")

    def may_average(self, worker):
        return worker.meet is not None and len(self.met[worker.meet.number]) == 2

    def over(self, worker, has=True):
        worker.said.append(AverageEnded(worker.meet.number, has))
        worker.meet = None

    @rule(pick=picks)
    def leave(self, pick):
        worker = self.one(pick, lambda worker: worker.trains and worker.meet is None)
        if worker is not None and pick % 4 == 0:
            worker.left = True
            worker.said.append(Leave(worker.number))

    # -- what the coordinator hears --------------------------------------------------------

    @rule(pick=picks)
    def hear(self, pick):
        if worker := self.one(pick, lambda worker: worker.said):
            self.take(worker)

    def take(self, worker):
        message = worker.said.popleft()
        if message == "it has a model":
            self.pairs.has_joined(worker.name)
        else:
            assert self.pairs.take(worker.name, message)

    @rule(pick=picks, is_heard=st.booleans())
    def lose(self, pick, is_heard):
        """A loss is noticed before or after the last messages of the worker are read."""
        worker = self.one(pick, lambda worker: worker.here)
        if worker is not None and pick % 8 == 0:
            worker.lost = True
            worker.deaths += 1
            while is_heard and worker.said:
                self.take(worker)
            worker.said.clear()
            self.pairs.lose(worker.name)

    @rule(pick=picks)
    def come_back(self, pick):
        """A new process takes the place of a worker if others have kept its model."""
        worker = self.one(pick, lambda worker: worker.lost)
        if worker is not None and self.pairs.can_give([worker.name], ()):
            self.generation += 1
            worker.lost, worker.seeks, worker.meet, worker.model = False, None, None, None
            worker.kept.clear()
            worker.to.clear()
            self.pairs.join(worker.name, self.generation)

    # -- what is always true ----------------------------------------------------------------

    @invariant()
    def an_average_comes_about_on_both_sides_unless_one_is_lost(self):
        for number, done in self.done.items():
            members = [self.workers[n] for n in self.members[number]]
            for worker in members:
                has_it_yet_to_come = worker.meet is not None and worker.meet.number == number
                is_done = worker.number in done
                assert is_done or has_it_yet_to_come or any(member.deaths for member in members)

    def teardown(self):
        """Once nobody asks any more, everybody is served."""
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
                assert worker.trains or not self.pairs.can_give([worker.name], ())
        if not any(worker.lost or worker.model is None for worker in self.workers):
            total = sum(worker.model for worker in self.workers)
            assert total == sum(worker.first for worker in self.workers)

    def is_busy(self):
        return any(
            worker.to or worker.said or (worker.here and self.may_average(worker))
            for worker in self.workers
        )


TestGossip = Gossip.TestCase


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_the_mean_of_the_models_stays_whichever_workers_die_and_come_back(workers):
    """More deaths than hypothesis draws. In the end all are there, and their sum is checked."""
    complete = deaths = 0
    for seed in range(150):
        draw = random.Random(f"{workers} {seed}")
        run = Gossip()
        run.begin(workers)
        for _ in range(250):
            step = draw.choice(
                [run.ask] * 3 + [run.look, run.hear, run.average] * 5 + [run.come_back, run.lose]
            )
            pick = draw.randrange(100)
            if step == run.lose:
                if draw.random() < 0.5:
                    run.lose(8 * pick, draw.random() < 0.5)
            else:
                step(pick)
            run.an_average_comes_about_on_both_sides_unless_one_is_lost()
        for n in range(workers):
            run.come_back(n)
        run.teardown()
        complete += all(worker.trains for worker in run.workers)
        deaths += sum(worker.deaths for worker in run.workers)
    assert complete > 5
    assert deaths > 300


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
    """An iteration in which that one is drawn."""
    others = [n for n in range(workers) if n != seeker]
    return next(n for n in range(1000) if partner_of(seeker, n, others, SEED) == partner)


def test_averages_begin_first_come_first_served_once_both_are_free():
    told = Told(4)
    for seeker, partner in ((0, 1), (2, 1), (3, 2), (1, 3)):
        told.pairs.take(worker_name(seeker), SeekPartner(beside(seeker, partner, 4)))
    assert told.meets == [(0, 1), (3, 2)]  # which nothing hinders, though 2 waits itself
    told.pairs.take("worker-1", AverageEnded(0))
    assert told.meets == []  # both others are busy
    told.pairs.take("worker-2", AverageEnded(1))
    assert told.meets == [(2, 1)]
    told.pairs.take("worker-3", AverageEnded(1))
    told.pairs.take("worker-1", AverageEnded(2))
    assert told.meets == [(1, 3)]


def test_who_is_lost_is_given_no_partner_whatever_it_said():
    told = Told(3)
    told.pairs.lose("worker-0")
    told.pairs.take("worker-0", SeekPartner(0))
    assert told.said == []


def test_who_cannot_reach_a_partner_that_is_still_there_ends_the_run():
    told = Told(2)
    told.pairs.take("worker-0", SeekPartner(0))
    told.pairs.take("worker-0", AverageFailed(0, "worker-1: no route"))
    with pytest.raises(RunError, match="worker-0 cannot reach worker-1: no route"):
        told.wait()


def test_who_cannot_reach_one_that_is_lost_asks_again():
    told = Told(3)
    told.pairs.take("worker-0", SeekPartner(beside(0, 1, 3)))
    told.pairs.take("worker-0", AverageFailed(0, "worker-1: it is silent"))
    told.said.clear()
    told.pairs.lose("worker-1")
    assert told.said == [CancelAverage(0)]
    told.pairs.take("worker-0", AverageEnded(0))
    told.pairs.take("worker-0", SeekPartner(beside(0, 1, 3)))
    assert told.meets == [(0, 2)]
    told.wait()


def test_an_action_between_averages_comes_after_those_under_way_and_before_the_next():
    told = Told(4)
    told.pairs.take("worker-0", SeekPartner(beside(0, 1, 4)))
    told.pairs.when_idle(lambda: told.said.append("now"))
    told.pairs.take("worker-2", SeekPartner(beside(2, 3, 4)))
    assert told.meets == [(0, 1)]  # the other one waits, though its workers are free
    told.pairs.take("worker-0", AverageEnded(0))
    assert told.said == []
    told.pairs.take("worker-1", AverageEnded(0))
    assert told.said[0] == "now"
    assert told.said[1:] == [StartAverage(1, 2, 3, 0)] * 2


def test_an_action_between_averages_does_not_wait_for_a_worker_that_is_lost():
    told = Told(3)
    told.pairs.take("worker-0", SeekPartner(beside(0, 1, 3)))
    told.said.clear()
    told.pairs.when_idle(lambda: told.said.append("now"))
    told.pairs.lose("worker-0")
    assert told.said == [CancelAverage(0)]
    told.pairs.take("worker-1", AverageEnded(0))
    assert told.said[1:] == ["now"]
    told.pairs.when_idle(lambda: told.said.append("again"))
    assert told.said[2:] == ["again"]
