"""Whatever happens, in any order: what the membership decides keeps its promises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.sync.membership.test_decide import KILLED, SERVERS, Run

from outpace.errors import ProtocolError
from outpace.sync.membership.decide import decide
from outpace.sync.membership.events import (
    AllBegin,
    AskedToScale,
    AttemptFailed,
    BeginAgain,
    CheckpointComplete,
    Confirmed,
    DeadlinePassed,
    EndRun,
    Event,
    Finished,
    Kill,
    Loss,
    NoPlaces,
    OnLoss,
    PlacesFound,
    ProcessEnded,
    ProcessesLost,
    Removed,
    Replace,
    Rules,
    Start,
    TooFewPlaces,
    TrainingBegan,
    WorkerBegan,
    WorkerTrained,
)
from outpace.sync.membership.table import NEXT, Phase, Table
from outpace.sync.messages import worker_name

numbers = st.integers(0, 2)
losses = st.builds(
    Loss,
    st.sampled_from([*SERVERS, *map(worker_name, range(2))]),
    st.just(KILLED),
    st.booleans(),
    st.booleans(),
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(AllBegin, st.just(2), st.just(2), checkpoint=numbers),
    st.builds(TrainingBegan),
    st.builds(CheckpointComplete, numbers),
    st.builds(AttemptFailed, st.just("it fails")),
    st.builds(ProcessesLost, st.lists(losses, min_size=1, max_size=2), st.booleans()),
    st.builds(ProcessEnded, st.integers(0, 1)),
    st.builds(Confirmed, st.sampled_from(SERVERS), numbers, numbers, numbers, numbers),
    st.builds(WorkerBegan, st.integers(0, 1)),
    st.builds(WorkerTrained, st.integers(0, 1)),
    st.builds(Finished, st.sampled_from(["worker-0", "worker-1", "server-0"])),
    st.builds(DeadlinePassed),
    st.builds(AskedToScale, st.none() | st.integers(1, 3), st.none() | st.integers(1, 3)),
    st.builds(PlacesFound),
    st.builds(NoPlaces, st.just("no room")),
    st.builds(TooFewPlaces, st.just("no room"), st.integers(1, 2)),
)


@given(st.lists(events, max_size=30), st.sampled_from(["restart", "continue", "stop"]))
@settings(max_examples=300, deadline=None)
def test_any_events_whatever_they_are_leave_a_table_that_is_whole(happened, on_loss):
    table = Run(on_loss=on_loss).table
    for now, event in enumerate(happened):
        try:
            after, orders = decide(table, event, now)
        except ProtocolError:
            continue
        assert decide(table, event, now) == (after, orders)  # a function of its arguments
        if not isinstance(event, AllBegin):
            require_whole(table, after)
        for order in orders:
            if isinstance(order, Start):
                started = after.workers[order.worker]
                assert started.is_starting
                assert (started.generation, started.first) == (order.generation, order.first)
        ends = [order for order in orders if isinstance(order, BeginAgain | EndRun)]
        assert ends == list(orders[: len(ends)])  # nothing is to be done before
        table = after


def require_whole(before: Table, after: Table) -> None:
    """Require that generations only grow, and that phases follow the table of states."""
    assert after.generation >= before.generation
    assert after.attempt == before.attempt
    steps = {(phase, then) for (phase, _), then in NEXT.items()}
    # A process whose servers have confirmed starts at once.
    steps |= {(first, last) for first, mid in steps for then, last in steps if mid is then}
    rows = zip(before.servers + before.workers, after.servers + after.workers, strict=True)
    for old, new in rows:
        assert new.generation >= old.generation
        assert old.phase is new.phase or (old.phase, new.phase) in steps
        assert new.generation <= after.generation
    generations = [each.generation for each in after.workers if each.generation]
    assert len(set(generations)) == len(generations)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_reached_and_all_but_the_last_ones_are_left(phase):
    assert phase.name == "ACTIVE" or phase in NEXT.values()
    is_last = phase.name in ("GONE", "CLOSED")
    assert is_last != any(before is phase for before, _ in NEXT)


class AnyOrder(RuleBasedStateMachine):
    """Losses, ends, answers and starts in any order, with processes that are simulated here."""

    @initialize(on_loss=st.sampled_from(["restart", "continue"]), workers=st.integers(1, 3))
    def begin(self, on_loss: OnLoss, workers: int) -> None:
        self.run = Run(workers, rules=Rules(on_loss, hopeless_s=1e6))
        self.restarts, self.checkpoint = on_loss == "restart", 1
        self.all_begin(workers)

    def all_begin(self, workers: int) -> None:
        self.workers = workers
        self.alive = {(worker, 0) for worker in range(workers)}  # processes: worker, generation
        self.heard = {(server, w): 0 for server in SERVERS for w in range(workers)}
        self.asked: list[Replace] = []
        self.ended = False
        self.away: set[int] = set()  # workers that have left
        self.finished: set[int] = set()

    def generation(self, worker: int) -> int:
        return self.run.table.workers[worker].generation

    def does(self, event: Event) -> None:
        self.run.now += 1
        orders = self.run.does(event)
        assert orders or not isinstance(event, ProcessesLost)  # every loss leads to something
        for order in orders:
            if isinstance(order, Replace):
                self.asked.append(order)
            elif isinstance(order, Start):
                # Its place is free, and no server hears the processes before it.
                assert not any(worker == order.worker for worker, _ in self.alive)
                for server in SERVERS:
                    assert self.heard[server, order.worker] == order.generation
                self.alive.add((order.worker, order.generation))
            elif isinstance(order, Removed):
                assert not self.restarts or order.worker in self.finished
                if order.worker not in self.finished:
                    self.away.add(order.worker)
            else:
                self.ended = not isinstance(order, Kill)

    @precondition(lambda self: not self.ended)
    @rule(data=st.data(), has_ended=st.booleans())
    def lose(self, data: Any, has_ended: bool) -> None:
        processes = sorted(p for p in self.alive if self.generation(p[0]) == p[1])
        if processes:
            process = data.draw(st.sampled_from(processes))
            if has_ended:
                self.alive.discard(process)
            self.does(ProcessesLost([Loss(worker_name(process[0]), KILLED, has_ended)]))

    @precondition(lambda self: not self.ended)
    @rule(data=st.data(), and_a_worker=st.booleans())
    def lose_a_server(self, data: Any, and_a_worker: bool) -> None:
        """All begin again, without the workers that have left."""
        lost = [data.draw(st.sampled_from(SERVERS))]
        present = [w for w in self.run.table.workers if not w.has_left]
        if and_a_worker and present:
            lost.append(data.draw(st.sampled_from(present)).name)
        self.checkpoint += 1
        self.run.does(CheckpointComplete(self.checkpoint))
        without = set() if self.restarts else {*lost[1:], *self.run.table.absent}
        (order,) = self.run.lose(*lost)
        if len(without) == self.workers:
            assert isinstance(order, EndRun)
            self.ended = True
            return
        assert isinstance(order, BeginAgain)
        assert set(order.without) == without
        assert (order.workers, order.servers) == (self.workers - len(without), 2)
        assert (order.checkpoint, order.lost) == (self.checkpoint, [Loss(lost[0], KILLED)])
        self.run.does(AllBegin(order.workers, order.servers, checkpoint=order.checkpoint))
        self.run.does(TrainingBegan())
        self.all_begin(order.workers)

    @rule(worker=numbers)
    def finish(self, worker: int) -> None:
        here = worker < self.workers and not self.run.table.workers[worker].is_coming_back
        if here and (worker, self.generation(worker)) in self.alive:
            self.does(Finished(worker_name(worker)))
            self.finished.add(worker)
            self.alive = {process for process in self.alive if process[0] != worker}

    @rule(data=st.data())
    def end_an_old_process(self, data: Any) -> None:
        old = sorted(p for p in self.alive if self.generation(p[0]) != p[1])
        if old:
            process = data.draw(st.sampled_from(old))
            self.alive.discard(process)
            self.does(ProcessEnded(process[0]))

    @rule(data=st.data())
    def confirm(self, data: Any) -> None:
        if self.asked:
            self.confirmed(self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1))))

    def confirmed(self, order: Replace) -> None:
        place = order.server, order.worker
        self.heard[place] = max(self.heard[place], order.generation)
        self.does(Confirmed(order.server, order.worker, order.generation, 4, 3))

    @rule(worker=numbers)
    def begin_again(self, worker: int) -> None:
        if worker < self.workers and self.run.table.workers[worker].is_starting:
            self.does(WorkerBegan(worker))

    @invariant()
    def one_process_of_each_worker_is_heard(self) -> None:
        if hasattr(self, "run"):
            for worker in range(self.workers):
                present = self.generation(worker)
                assert sum(p == (worker, present) for p in self.alive) <= 1
                waits = self.run.table.workers[worker].is_coming_back
                assert not waits or self.run.table.next_deadline is not None

    def teardown(self) -> None:
        """Lost workers come back once all have answered and the old processes have ended."""
        if not hasattr(self, "run") or self.ended or not self.restarts:
            return
        while self.asked:
            self.confirmed(self.asked.pop(0))
        for worker, generation in sorted(self.alive):
            if generation != self.generation(worker):
                self.alive.discard((worker, generation))
                self.does(ProcessEnded(worker))
        out = self.finished | self.away
        for worker in set(range(self.workers)) - out:
            assert (worker, self.generation(worker)) in self.alive


def test_any_order_of_events():
    run_state_machine_as_test(AnyOrder, settings=settings(max_examples=60, stateful_step_count=30))
