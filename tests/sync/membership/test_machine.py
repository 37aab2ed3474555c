"""The orders of the membership when the process of a worker or a server is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outpace.errors import ProtocolError
from outpace.support.units import SECOND
from outpace.sync.membership import (
    BeginAgain,
    EndRun,
    Kill,
    Loss,
    Membership,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)
from outpace.sync.messages import worker_name

SERVERS = ("server-0", "server-1")
RULES = Rules(fence_s=60, start_s=120, hopeless_s=300)
KILLED = "was killed by SIGKILL"


def training(
    workers: int, servers: Sequence[str], rules: Rules, schedulers: Sequence[str] = ()
) -> Membership:
    """Return the processes of a run whose training has begun."""
    members = Membership(rules, schedulers)
    members.begin(workers, servers)
    members.started()
    return members


def lose(
    members: Membership, worker: int, how: str, now: int, *, has_ended: bool
) -> Sequence[Order]:
    return members.lost([Loss(worker_name(worker), how, has_ended)], now)


def replaced(worker: int, generation: int, *, stays: bool = True) -> list[Order]:
    return [Replace(server, worker, generation, stays) for server in SERVERS]


def came_back(members: Membership, worker: int, generation: int, reached: int, now: int) -> None:
    """The worker is lost, all servers have this iteration of it, and a new process begins."""
    lose(members, worker, KILLED, now, has_ended=True)
    members.confirmed("server-0", worker, generation, reached, 0, now)
    orders = members.confirmed("server-1", worker, generation, reached, 0, now)
    assert orders == [Start(worker, generation, reached + 1, 0)]
    members.began(worker)


def test_a_new_process_starts_once_all_servers_hear_only_it():
    members = training(3, SERVERS, RULES)
    assert lose(members, 1, KILLED, 0, has_ended=True) == replaced(1, 1)
    assert members.is_coming_back(1)
    assert members.confirmed("server-1", 1, 1, watermark=7, clock=5, now=1) == []
    assert not members.is_starting(1)
    # server-0 lacks iterations 6 and 7 of it; its clock is that of server-1.
    started = members.confirmed("server-0", 1, 1, watermark=5, clock=5, now=2)
    assert started == [Start(1, 1, first=8, lost=2)]
    assert members.done(1) == 8
    assert members.is_starting(1)
    members.began(1)
    assert not members.is_coming_back(1)
    assert members.next_deadline is None


def test_it_begins_where_the_shards_are_that_have_finished_iterations_without_it():
    members = training(2, SERVERS, RULES)
    lose(members, 0, KILLED, 0, has_ended=True)
    members.confirmed("server-0", 0, 1, watermark=3, clock=9, now=1)
    # Iterations up to 8 were finished without the worker: nothing of them is lost.
    assert members.confirmed("server-1", 0, 1, watermark=3, clock=9, now=1) == [Start(0, 1, 9, 0)]
    assert members.done(0) == 4


def test_a_script_goes_on_with_what_it_keeps_and_what_a_server_lacks_of_before_is_lost():
    members = training(2, SERVERS, RULES)
    members.keeps(0, 9)
    lose(members, 0, KILLED, 0, has_ended=True)
    members.confirmed("server-0", 0, 1, watermark=7, clock=0, now=1)
    # Both lack iteration 8, whose push was on its way, and server-1 has gone back to 4.
    started = members.confirmed("server-1", 0, 1, watermark=4, clock=0, now=1)
    assert started == [Start(0, 1, first=9, lost=4)]
    assert members.done(0) == 8
    members.began(0)
    # It has pushed 9 to 11 and has not sent its state since. The next process computes them again.
    members.keeps(0, 9)
    lose(members, 0, KILLED, 2, has_ended=True)
    members.confirmed("server-0", 0, 2, watermark=11, clock=0, now=3)
    assert members.confirmed("server-1", 0, 2, 11, 0, now=3) == [Start(0, 2, first=12, lost=0)]


def test_a_worker_that_does_not_come_back_loses_nothing_that_its_script_keeps():
    members = training(2, SERVERS, Rules("continue"))
    members.keeps(0, 9)
    lose(members, 0, KILLED, 0, has_ended=True)
    members.confirmed("server-0", 0, 1, watermark=7, clock=0, now=1)
    assert members.confirmed("server-1", 0, 1, 5, 0, now=1) == [Removed(0, lost=2)]


def test_a_scheduler_confirms_too_and_has_no_gradients_that_could_be_lost():
    members = training(2, SERVERS[:1], RULES, schedulers=["scheduler"])
    replaces = lose(members, 0, KILLED, 0, has_ended=True)
    assert replaces == [Replace("server-0", 0, 1, stays=True), Replace("scheduler", 0, 1, True)]
    members.confirmed("server-0", 0, 1, watermark=4, clock=4, now=1)
    # The barrier has let others through, so the worker must not push iteration 5 any more.
    assert members.confirmed("scheduler", 0, 1, watermark=3, clock=6, now=1) == [Start(0, 1, 6, 0)]


def test_a_process_that_may_be_alive_is_killed_and_its_successor_waits_for_its_end():
    members = training(2, SERVERS, RULES)
    assert lose(members, 0, "is silent", 0, has_ended=False) == [*replaced(0, 1), Kill(0)]
    members.confirmed("server-0", 0, 1, -1, 0, now=1)
    assert members.confirmed("server-1", 0, 1, -1, 0, now=1) == []
    assert members.process_ended(0, now=2) == [Start(0, 1, 0, 0)]


def test_reports_of_the_same_loss_count_once():
    members = training(2, SERVERS, RULES)
    lose(members, 0, "is silent", 0, has_ended=False)
    assert lose(members, 0, KILLED, 1, has_ended=True) == []
    assert lose(members, 0, "is silent", 2, has_ended=False) == []
    members.confirmed("server-0", 0, 1, -1, 0, now=3)
    assert members.confirmed("server-1", 0, 1, -1, 0, now=3) == [Start(0, 1, 0, 0)]


def test_generations_count_all_processes_that_come_back():
    members = training(3, SERVERS, RULES)
    came_back(members, 2, 1, reached=4, now=0)
    came_back(members, 0, 2, reached=4, now=0)
    came_back(members, 2, 3, reached=9, now=0)
    assert [members.generation(worker) for worker in range(3)] == [2, 0, 3]


def test_a_process_that_dies_while_it_starts_is_replaced_and_old_answers_are_ignored():
    members = training(2, SERVERS, RULES)
    lose(members, 0, KILLED, 0, has_ended=True)
    for server in SERVERS:
        orders = members.confirmed(server, 0, 1, 3, 2, now=1)
    assert orders == [Start(0, 1, 4, 0)]
    assert lose(members, 0, KILLED, 2, has_ended=True) == replaced(0, 2)
    assert members.confirmed("server-0", 0, 1, 3, 2, now=3) == []
    assert members.confirmed("server-0", 0, 2, 3, 2, now=3) == []
    assert members.confirmed("server-1", 0, 2, 3, 2, now=3) == [Start(0, 2, 4, 0)]


@pytest.mark.parametrize("rules", [Rules("continue"), Rules("restart", can_start=False)])
def test_the_run_goes_on_without_a_worker_but_not_without_all(rules):
    members = training(2, SERVERS, rules)
    assert members.can_spare(0)
    lost = lose(members, 0, "is silent", 0, has_ended=False)
    assert lost == [*replaced(0, 1, stays=False), Kill(0)]
    assert members.confirmed("server-0", 0, 1, 3, 2, now=1) == []
    assert members.confirmed("server-1", 0, 1, 1, 2, now=1) == [Removed(0, lost=2)]
    assert lose(members, 0, KILLED, 2, has_ended=True) == []
    assert not members.can_spare(1)
    assert lose(members, 1, KILLED, 3, has_ended=True) == [EndRun(f"worker-1 {KILLED}")]


def test_a_scheduler_lets_others_through_only_when_no_server_waits_for_the_worker_that_left():
    members = training(2, SERVERS, Rules("continue"), schedulers=["scheduler"])
    assert lose(members, 0, KILLED, 0, has_ended=True) == replaced(0, 1, stays=False)
    assert members.confirmed("server-0", 0, 1, 3, 2, now=1) == []
    told = members.confirmed("server-1", 0, 1, 3, 2, now=2)
    assert told == [Replace("scheduler", 0, 1, stays=False)]
    assert members.confirmed("scheduler", 0, 1, 3, 2, now=3) == [Removed(0, lost=0)]


def test_stop_ends_the_run_with_the_first_loss():
    members = training(2, SERVERS, Rules("stop"))
    assert lose(members, 1, KILLED, 0, has_ended=True) == [EndRun(f"worker-1 {KILLED}")]


def test_servers_are_told_of_the_loss_of_a_worker_that_has_finished():
    # Its last message may not have reached all of them.
    members = training(2, SERVERS, RULES, schedulers=["scheduler"])
    members.finished(0)
    assert lose(members, 0, KILLED, 5, has_ended=True) == replaced(0, 1, stays=False)
    assert lose(members, 0, KILLED, 6, has_ended=True) == []
    assert members.confirmed("server-0", 0, 1, 9, 9, now=7) == []
    told = members.confirmed("server-1", 0, 1, 8, 8, now=7)
    assert told == [Replace("scheduler", 0, 1, stays=False)]
    assert members.confirmed("scheduler", 0, 1, 9, 9, now=8) == [Removed(0, lost=1)]
    assert lose(members, 0, KILLED, 9, has_ended=True) == []
    assert members.can_spare(1)


@pytest.mark.parametrize(
    ("steps", "at_s", "missing"),
    [
        (0, 60, "server-0, server-1 did not confirm it within 60 s"),
        (1, 60, "server-1 did not confirm it within 60 s"),
        (2, 60, "its process did not end within 60 s"),
        (3, 130, "the process that takes its place was not ready within 120 s"),
    ],
)
def test_every_wait_has_a_limit_that_names_who_was_waited_for(steps, at_s, missing):
    members = training(2, SERVERS, RULES)
    lose(members, 0, "is silent", 0, has_ended=False)
    for server in SERVERS[:steps]:
        members.confirmed(server, 0, 1, -1, 0, now=SECOND)
    if steps == 3:
        members.process_ended(0, now=10 * SECOND)
    assert members.next_deadline == at_s * SECOND
    assert members.on_time(at_s * SECOND - 1) == []
    assert members.on_time(at_s * SECOND) == [EndRun(f"worker-0 is silent, and {missing}")]
    assert members.next_deadline is None


def test_a_worker_that_keeps_dying_without_an_iteration_ends_the_run():
    members = training(2, SERVERS, RULES)
    for death in range(4):  # at 0, 100, 200, 300 s
        came_back(members, 0, death + 1, reached=8 if death else 3, now=death * 100 * SECOND)
    # Between the deaths at 0 and 100 s it finished iterations, so the count begins at 100 s.
    lose(members, 0, KILLED, 400 * SECOND, has_ended=True)
    members.confirmed("server-0", 0, 5, 8, 0, now=400 * SECOND)
    (start,) = members.confirmed("server-1", 0, 5, 8, 0, now=400 * SECOND)  # 300 s, 4 deaths
    assert isinstance(start, Start)
    lose(members, 0, KILLED, 401 * SECOND, has_ended=True)
    members.confirmed("server-0", 0, 6, 8, 0, now=401 * SECOND)
    assert members.confirmed("server-1", 0, 6, 8, 0, now=401 * SECOND) == [
        EndRun(
            "worker-0 was lost 5 times in 301 s and finished no iteration in this time; "
            "the last time it was killed by SIGKILL"
        )
    ]


def test_a_worker_that_is_killed_every_second_comes_back():
    members = training(2, SERVERS, RULES)
    for second in range(60):
        came_back(members, 0, second + 1, reached=-1, now=second * SECOND)


@pytest.mark.parametrize(
    ("server", "worker", "generation", "why"),
    [
        ("server-0", 0, 2, "confirms generation 2 of worker-0, for which it was not asked"),
        ("server-0", 1, 0, "confirms generation 0 of worker-1, for which it was not asked"),
        ("server-9", 0, 1, "server-9 confirms generation 1 of worker-0"),
        ("server-0", 7, 1, "confirms worker 7, which does not exist"),
    ],
)
def test_what_no_server_was_asked_is_refused_and_changes_nothing(server, worker, generation, why):
    members = training(2, SERVERS, RULES)
    lose(members, 0, KILLED, 0, has_ended=True)
    with pytest.raises(ProtocolError, match=why):
        members.confirmed(server, worker, generation, 3, 3, now=1)
    members.confirmed("server-0", 0, 1, 3, 3, now=2)
    with pytest.raises(ProtocolError, match="for which it was not asked"):
        members.confirmed("server-0", 0, 1, 3, 3, now=3)
    assert members.confirmed("server-1", 0, 1, 3, 3, now=4) == [Start(0, 1, 4, 0)]


def test_nobody_begins_again_whose_process_was_not_lost():
    members = training(2, SERVERS, RULES)
    with pytest.raises(ProtocolError, match="worker-1 begins again, but its process was not lost"):
        members.began(1)


def test_the_end_of_a_process_is_awaited_from_its_loss_on_until_it_has_ended():
    members = training(2, SERVERS, RULES)
    assert not members.awaits_end(1)
    lose(members, 1, KILLED, 0, has_ended=False)
    assert members.awaits_end(1)
    members.process_ended(1, 1)
    assert not members.awaits_end(1)
    members.confirmed("server-0", 1, 1, 7, 5, 1)
    members.confirmed("server-1", 1, 1, 7, 5, 1)
    assert members.is_starting(1)
    assert not members.awaits_end(1)


@pytest.mark.parametrize("is_starting", [True, False])
def test_the_run_goes_on_without_a_lost_worker_for_which_there_is_no_room(is_starting):
    members = training(2, SERVERS, RULES)
    lose(members, 1, KILLED, 0, has_ended=True)
    members.confirmed("server-0", 1, 1, 7, 5, 1)
    if is_starting:
        members.confirmed("server-1", 1, 1, 6, 5, 1)
    assert members.goes_without(1) == replaced(1, 2, stays=False)
    assert members.has_left(1)
    assert not members.is_coming_back(1)
    assert members.next_deadline is None
    assert members.confirmed("server-1", 1, 1, 6, 5, 2) == []  # of the generation before
    assert members.confirmed("server-0", 1, 2, 7, 9, 2) == []
    # Iteration 7, which server-1 lacks, is counted once: when its start was ordered, or now.
    lost = 0 if is_starting else 1
    assert members.confirmed("server-1", 1, 2, 6, 6, 2) == [Removed(1, lost)]


def test_a_worker_is_not_given_up_that_takes_part_or_is_the_last():
    members = training(2, SERVERS, RULES)
    with pytest.raises(ProtocolError, match="the run cannot go on without worker-1 now"):
        members.goes_without(1)
    for worker in range(2):
        lose(members, worker, KILLED, 0, has_ended=True)
    assert members.goes_without(1) == replaced(1, 3, stays=False)
    with pytest.raises(ProtocolError, match="the run cannot go on without worker-0 now"):
        members.goes_without(0)


class AnyOrder(RuleBasedStateMachine):
    """Losses, ends, answers and starts in any order, with processes that are simulated here."""

    @initialize(on_loss=st.sampled_from(["restart", "continue"]), workers=st.integers(1, 3))
    def begin(self, on_loss, workers):
        self.members = training(workers, SERVERS, Rules(on_loss, hopeless_s=1e6))
        self.now, self.restarts, self.checkpoint = 0, on_loss == "restart", 0
        self.all_begin(workers)

    def all_begin(self, workers):
        self.workers = workers
        self.alive = {(worker, 0) for worker in range(workers)}  # processes: worker, generation
        self.heard = {(server, w): 0 for server in SERVERS for w in range(workers)}
        self.asked: list[Replace] = []
        self.newest, self.ended = 0, False
        self.away: set[int] = set()  # workers that have left
        self.finished: set[int] = set()
        self.given_up: set[int] = set()  # lost workers for which there is no room

    def do(self, orders: list[Order]) -> None:
        for order in orders:
            if isinstance(order, Replace):
                self.asked.append(order)
                self.newest = max(self.newest, order.generation)
            elif isinstance(order, Kill):
                self.to_kill = order.worker
            elif isinstance(order, Start):
                # Its place is free, and no server hears the processes before it.
                assert not any(worker == order.worker for worker, _ in self.alive)
                for server in SERVERS:
                    assert self.heard[server, order.worker] == order.generation
                self.alive.add((order.worker, order.generation))
            elif isinstance(order, Removed):
                assert not self.restarts or order.worker in self.finished | self.given_up
                if order.worker not in self.finished:
                    self.away.add(order.worker)
            else:
                self.ended = True

    @precondition(lambda self: not self.ended)
    @rule(data=st.data(), is_known_to_have_ended=st.booleans())
    def lose(self, data, is_known_to_have_ended):
        processes = sorted(p for p in self.alive if self.members.generation(p[0]) == p[1])
        if not processes:
            return
        process = data.draw(st.sampled_from(processes))
        if is_known_to_have_ended:
            self.alive.discard(process)
        self.now += 1
        orders = lose(self.members, process[0], "", self.now, has_ended=is_known_to_have_ended)
        assert orders  # every loss leads to something
        self.do(orders)

    @precondition(lambda self: not self.ended)
    @rule(data=st.data(), and_a_worker=st.booleans())
    def lose_a_server(self, data, and_a_worker):
        """All begin again, without the workers that have left."""
        lost = [Loss(data.draw(st.sampled_from(SERVERS)), KILLED)]
        present = [w for w in range(self.workers) if not self.members.has_left(w)]
        if and_a_worker and present:
            lost.append(Loss(worker_name(data.draw(st.sampled_from(present))), KILLED))
        self.now += 1
        self.checkpoint += 1
        (order,) = self.members.lost(lost, self.now, checkpoint=self.checkpoint)
        without = set() if self.restarts else {loss.name for loss in lost[1:]}
        for worker in range(self.workers):
            if self.members.has_left(worker) and not self.restarts:
                without.add(worker_name(worker))
        if len(without) == self.workers:
            assert isinstance(order, EndRun)
            self.ended = True
            return
        assert order == BeginAgain(str(lost[0]), [lost[0].name], self.checkpoint, order.without)
        assert set(order.without) == without
        self.members.begin(self.workers - len(without), SERVERS)
        assert self.members.lost(lost[:1], self.now) == [BeginAgain(str(lost[0]), [lost[0].name])]
        self.members.begin(self.workers - len(without), SERVERS)
        self.members.started()
        self.all_begin(self.workers - len(without))

    @rule(worker=st.integers(0, 2))
    def finish(self, worker):
        here = worker < self.workers and not self.members.is_coming_back(worker)
        if here and (worker, self.members.generation(worker)) in self.alive:
            self.members.finished(worker)
            self.finished.add(worker)
            self.ends(worker)

    def ends(self, worker):
        self.alive = {process for process in self.alive if process[0] != worker}

    @precondition(lambda self: not self.ended)
    @rule(worker=st.integers(0, 2))
    def go_without(self, worker):
        """There is no room for the next process of a lost worker; one worker stays."""
        coming = worker < self.workers and self.members.is_coming_back(worker)
        if coming and len(self.away | self.given_up | {worker}) < self.workers:
            self.given_up.add(worker)
            self.do(self.members.goes_without(worker))

    @rule(data=st.data())
    def end_an_old_process(self, data):
        old = sorted(p for p in self.alive if self.members.generation(p[0]) != p[1])
        if old:
            process = data.draw(st.sampled_from(old))
            self.alive.discard(process)
            self.do(self.members.process_ended(process[0], self.now))

    @rule(data=st.data())
    def confirm(self, data):
        if self.asked:
            order = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
            place = order.server, order.worker
            self.heard[place] = max(self.heard[place], order.generation)
            answer = order.server, order.worker, order.generation, 4, 3
            self.do(self.members.confirmed(*answer, self.now))

    @rule(worker=st.integers(0, 2))
    def begin_again(self, worker):
        if worker < self.workers and self.members.is_starting(worker):
            self.members.began(worker)

    @invariant()
    def one_process_of_each_worker_is_heard(self):
        if hasattr(self, "members"):
            for worker in range(self.workers):
                present = self.members.generation(worker)
                assert sum(p == (worker, present) for p in self.alive) <= 1
                waits = self.members.is_coming_back(worker)
                assert not waits or self.members.next_deadline is not None

    def teardown(self):
        """Lost workers come back once all have answered and the old processes have ended."""
        if not hasattr(self, "members") or self.ended or not self.restarts:
            return
        while self.asked:
            order = self.asked.pop(0)
            self.heard[order.server, order.worker] = order.generation
            answer = order.server, order.worker, order.generation, 4, 3
            self.do(self.members.confirmed(*answer, self.now))
        for worker, generation in sorted(self.alive):
            if generation != self.members.generation(worker):
                self.alive.discard((worker, generation))
                self.do(self.members.process_ended(worker, self.now))
        out = self.finished | self.away | self.given_up
        for worker in set(range(self.workers)) - out:
            assert (worker, self.members.generation(worker)) in self.alive


def test_any_order_of_events():
    run_state_machine_as_test(AnyOrder, settings=settings(max_examples=60, stateful_step_count=30))
