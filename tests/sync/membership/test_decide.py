"""The decisions of the membership about lost processes and about requests for other numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from outpace.errors import ProtocolError
from outpace.support.units import SECOND
from outpace.sync.membership.decide import MOST_LOSSES, Membership
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
    Order,
    PlacesFound,
    ProcessEnded,
    ProcessesLost,
    Removed,
    Replace,
    Reserve,
    Rules,
    Save,
    Scaled,
    Start,
    TooFewPlaces,
    TrainingBegan,
    Unchanged,
    WorkerBegan,
    WorkerTrained,
)
from outpace.sync.messages import server_name, worker_name

SERVERS = ("server-0", "server-1")
KILLED = "was killed by SIGKILL"
PEERS = Rules(least=2)


class Run(Membership):
    """A run whose training has begun, from checkpoint 1. now: the time of the next event."""

    def __init__(
        self,
        workers: int = 2,
        servers: int = 2,
        *,
        schedulers: Sequence[str] = (),
        rules: Rules | None = None,
        has_begun: bool = True,
        checkpoint: int = 1,
        **changes: Any,
    ) -> None:
        super().__init__(replace(rules or Rules(), **changes), schedulers)
        self.now = 0
        self.does(AllBegin(workers, servers, checkpoint=checkpoint))
        if has_begun:
            self.does(TrainingBegan())

    def does(self, event: Event) -> Sequence[Order]:
        return self.take(event, self.now)

    def lose(self, *names: str | int, **facts: Any) -> Sequence[Order]:
        """Lose workers, by number, or servers, by name."""
        named = [worker_name(each) if isinstance(each, int) else each for each in names]
        return self.does(ProcessesLost([Loss(name, KILLED, **facts) for name in named]))

    def after(self, *names: str | int, **facts: Any) -> Order:
        """Lose processes, and return the first order."""
        return self.lose(*names, **facts)[0]

    def confirm(
        self, worker: int, generation: int, *reached: tuple[int, int], servers: Any = SERVERS
    ) -> Sequence[Order]:
        """Confirm a generation by servers, each with a watermark and a clock."""
        orders: Sequence[Order] = []
        for server, (watermark, clock) in zip(servers, reached, strict=False):
            assert orders == []
            orders = self.does(Confirmed(server, worker, generation, watermark, clock))
        return orders

    def comes_back(self, worker: int, generation: int, mark: int) -> None:
        """Lose a worker whose iterations up to this one have arrived; let another begin."""
        self.lose(worker)
        orders = self.confirm(worker, generation, (mark, 0), (mark, 0))
        assert orders == [Start(worker, generation, mark + 1, 0)]
        self.does(WorkerBegan(worker))


def replaced(worker: int, generation: int, *, stays: bool = True) -> list[Order]:
    return [Replace(server, worker, generation, stays) for server in SERVERS]


def again(*names: str, why: str = "", workers: int = 3, servers: int = 2, **more: Any) -> Order:
    """Return the order to begin again after the loss of these processes."""
    lost = [Loss(name, KILLED) for name in names]
    return BeginAgain(why or f"{names[0]} {KILLED}", workers, servers, lost=lost, **more)


# -- a worker that is replaced ------------------------------------------------------------


def test_a_new_process_starts_once_all_servers_hear_only_it():
    run = Run(3)
    assert run.lose(1) == replaced(1, 1)
    assert run.table.returning == ["worker-1"]
    assert run.does(Confirmed("server-1", 1, 1, watermark=7, clock=5)) == []
    assert not run.table.workers[1].is_starting
    # server-0 lacks its iterations 6 and 7, and has the same clock as server-1.
    assert run.does(Confirmed("server-0", 1, 1, 5, 5)) == [Start(1, 1, first=8, lost=2)]
    assert run.table.workers[1].done == 8
    assert run.table.workers[1].is_starting
    run.does(WorkerBegan(1))
    assert run.table.returning == []
    assert run.table.next_deadline is None


def test_a_script_continues_with_what_it_keeps_and_what_a_server_lacks_of_before_is_lost():
    run = Run()
    run.lose(0, kept=9)
    # Both lack iteration 8, whose push had not arrived, and server-1 has returned to 4.
    assert run.confirm(0, 1, (7, 0), (4, 0)) == [Start(0, 1, first=9, lost=4)]
    assert run.table.workers[0].done == 8
    run.does(WorkerBegan(0))
    # It has pushed 9 to 11 and has not sent its state since. The next process computes them again.
    run.lose(0, kept=9)
    assert run.confirm(0, 2, (11, 0), (11, 0)) == [Start(0, 2, first=12, lost=0)]


def test_a_scheduler_confirms_too_and_has_no_gradients_that_could_be_lost():
    run = Run(2, 1, schedulers=["scheduler"])
    assert run.lose(0) == [Replace("server-0", 0, 1, True), Replace("scheduler", 0, 1, True)]
    run.does(Confirmed("server-0", 0, 1, watermark=4, clock=4))
    # The others have passed the barrier, so the worker must not push iteration 5 any more.
    assert run.does(Confirmed("scheduler", 0, 1, 3, 6)) == [Start(0, 1, 6, 0)]


def test_a_process_that_may_be_alive_is_killed_and_its_successor_waits_for_its_end():
    run = Run()
    assert not run.table.workers[0].awaits_end
    assert run.lose(0, has_ended=False) == [*replaced(0, 1), Kill(0)]
    assert run.confirm(0, 1, (-1, 0), (-1, 0)) == []
    assert run.table.workers[0].awaits_end
    assert run.does(ProcessEnded(0)) == [Start(0, 1, 0, 0)]


def test_reports_of_the_same_loss_count_once():
    run = Run()
    run.lose(0, has_ended=False)
    assert run.lose(0) == []
    assert run.lose(0, has_ended=False) == []
    assert run.confirm(0, 1, (-1, 0), (-1, 0)) == [Start(0, 1, 0, 0)]


def test_a_process_that_dies_while_it_starts_is_replaced_and_old_answers_are_ignored():
    run = Run()
    run.lose(0)
    assert run.confirm(0, 1, (3, 2), (3, 2)) == [Start(0, 1, 4, 0)]
    assert run.lose(0) == replaced(0, 2)
    assert run.does(Confirmed("server-0", 0, 1, 3, 2)) == []
    assert run.confirm(0, 2, (3, 2), (3, 2)) == [Start(0, 2, 4, 0)]


@pytest.mark.parametrize("rules", [Rules("continue"), Rules("restart", can_start=False)])
def test_the_run_continues_without_a_worker_but_not_without_all(rules):
    run = Run(rules=rules)
    assert run.table.can_spare("worker-0")
    assert run.lose(0, has_ended=False) == [*replaced(0, 1, stays=False), Kill(0)]
    assert run.confirm(0, 1, (3, 2), (1, 2)) == [Removed(0, lost=2)]
    assert run.lose(0) == []
    assert not run.table.can_spare("worker-1")
    assert run.lose(1) == [EndRun(f"worker-1 {KILLED}")]
    run = Run(rules=rules)
    assert run.lose(0, 1) == [EndRun(f"worker-0 {KILLED}")]


def test_a_scheduler_lets_others_through_only_when_no_server_waits_for_the_worker_that_left():
    run = Run(on_loss="continue", schedulers=["scheduler"])
    assert run.lose(0) == replaced(0, 1, stays=False)
    assert run.confirm(0, 1, (3, 2), (3, 2)) == [Replace("scheduler", 0, 1, stays=False)]
    assert run.does(Confirmed("scheduler", 0, 1, 3, 2)) == [Removed(0, lost=0)]


def test_servers_are_told_of_the_loss_of_a_worker_that_has_finished():
    # Its last message may not have reached all servers.
    run = Run(schedulers=["scheduler"])
    run.does(Finished("worker-0"))
    assert run.lose(0) == replaced(0, 1, stays=False)
    assert run.lose(0) == []
    assert run.confirm(0, 1, (9, 9), (8, 8)) == [Replace("scheduler", 0, 1, stays=False)]
    assert run.does(Confirmed("scheduler", 0, 1, 9, 9)) == [Removed(0, lost=1)]
    assert run.lose(0) == []
    assert run.table.can_spare("worker-1")


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
    run = Run()
    run.lose(0, has_ended=False)
    run.confirm(0, 1, *[(-1, 0)] * min(steps, 2))
    if steps == 3:
        run.now = 10 * SECOND
        run.does(ProcessEnded(0))
    assert run.table.next_deadline == at_s * SECOND
    run.now = at_s * SECOND - 1
    assert run.does(DeadlinePassed()) == []
    run.now += 1
    assert run.does(DeadlinePassed()) == [EndRun(f"worker-0 {KILLED}, and {missing}")]
    assert run.table.next_deadline is None


def test_a_worker_that_keeps_dying_without_an_iteration_ends_the_run():
    run = Run()
    for death in range(4):  # at 0, 100, 200, 300 s
        run.now = death * 100 * SECOND
        run.comes_back(0, death + 1, mark=8 if death else 3)
    # Between the deaths at 0 and 100 s it finished iterations, so the count begins at 100 s.
    run.now = 400 * SECOND
    run.comes_back(0, 5, mark=8)  # 300 s, 4 deaths
    run.now += SECOND
    run.lose(0)
    reason = (
        "worker-0 was lost 5 times in 301 s and finished no iteration in this time; "
        "the last time it was killed by SIGKILL"
    )
    assert run.confirm(0, 6, (8, 0), (8, 0)) == [EndRun(reason)]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Confirmed("server-0", 0, 2, 3, 3), "confirms generation 2 of worker-0, for which it was"),
        (Confirmed("server-0", 1, 0, 3, 3), "confirms generation 0 of worker-1, for which it was"),
        (Confirmed("server-9", 0, 1, 3, 3), "server-9 confirms generation 1 of worker-0"),
        (Confirmed("server-0", 7, 1, 3, 3), "confirms worker 7, which does not exist"),
        (WorkerBegan(1), "worker-1 is active: began cannot be"),
        (PlacesFound(), "the run does not wait for places"),
    ],
)
def test_an_event_that_cannot_happen_is_refused_and_changes_nothing(event, why):
    run = Run()
    run.lose(0)
    before = run.table
    with pytest.raises(ProtocolError, match=why):
        run.does(event)
    assert run.table is before
    run.does(Confirmed("server-0", 0, 1, 3, 3))
    with pytest.raises(ProtocolError, match="for which it was not asked"):
        run.does(Confirmed("server-0", 0, 1, 3, 3))
    assert run.does(Confirmed("server-1", 0, 1, 3, 3)) == [Start(0, 1, 4, 0)]


def test_without_room_for_a_lost_worker_all_begin_again_with_the_others():
    run = Run(checkpoint=3)
    with pytest.raises(ProtocolError, match="the run has places for all its processes"):
        run.does(TooFewPlaces("no room", 1))
    run.lose(1)
    why = "there is no room for worker-1"
    assert run.does(TooFewPlaces(why, 1)) == [BeginAgain(why, 1, 2, 3)]
    run.does(AllBegin(1, 2, checkpoint=3))
    assert run.does(TrainingBegan()) == [Scaled("", before=(2, 2), asked_at=0)]


# -- what follows a loss -------------------------------------------------------------------


@pytest.mark.parametrize(("servers", "is_server"), [(2, True), (2, False), (0, False)])
@pytest.mark.parametrize("on_loss", ["restart", "continue", "stop"])
@pytest.mark.parametrize("facts", list(itertools.product((False, True), repeat=3)))
def test_only_a_worker_of_a_run_with_servers_that_trains_is_replaced_alone(
    servers, is_server, on_loss, facts
):
    has_begun, has_exited, can_restart = facts
    changes: Any = {"on_server_loss" if is_server else "on_loss": on_loss}
    run = Run(3, servers, has_begun=has_begun, can_begin_again=can_restart, **changes)
    name = "server-1" if is_server else "worker-1"
    order = run.after(name, has_exited=has_exited)
    lost = (Loss(name, KILLED, has_exited=has_exited),)
    if can_restart and not has_begun and not has_exited and on_loss != "stop":
        assert order == again(name, servers=servers)
    elif on_loss == "stop":
        assert isinstance(order, EndRun)
        assert bool(order.lost) == is_server
    elif is_server or (not servers and not (has_exited and on_loss == "restart")):
        without = (name,) if on_loss == "continue" else ()
        left = 3 - len(without) * (not is_server), servers - len(without) * is_server
        expected = BeginAgain(str(lost[0]), *left, 1, list(lost), without)
        assert order == expected if can_restart else isinstance(order, EndRun)
    elif not servers or not has_begun or (has_exited and on_loss == "restart"):
        assert order == EndRun(str(lost[0]))
    else:
        assert isinstance(order, Replace)


@pytest.mark.parametrize("on_loss", ["restart", "continue"])
@pytest.mark.parametrize("workers", range(4))
@pytest.mark.parametrize("servers", range(3))
@pytest.mark.parametrize("rules", [Rules(), PEERS])
def test_all_that_are_left_begin_again_if_there_are_enough(on_loss, workers, servers, rules):
    servers_in_run, servers = (2, servers) if rules.least == 1 else (0, 0)
    if not (servers or (workers and not servers_in_run)):
        return
    rules = replace(rules, on_loss=on_loss, on_server_loss=on_loss)
    names = [*map(server_name, range(servers)), *map(worker_name, range(workers))]
    order = Run(3, servers_in_run, rules=rules).after(*names)
    left = (3 - workers, servers_in_run - servers) if on_loss == "continue" else (3, servers_in_run)
    if left[0] >= rules.least and (left[1] or not servers_in_run):
        assert isinstance(order, BeginAgain)
        assert (order.workers, order.servers) == left
        assert sorted(order.without) == (sorted(names) if on_loss == "continue" else [])
    else:
        assert isinstance(order, EndRun)
        assert "SIGKILL; the run needs at least" in order.reason


def test_a_worker_that_left_before_does_not_begin_again_with_the_others():
    run = Run(3, on_loss="continue")
    assert isinstance(run.after(1), Replace)
    expected = again("server-0", workers=2, checkpoint=1, without=("worker-1",))
    assert run.after("server-0") == expected
    run.does(AllBegin(3, 2, gone=[1], checkpoint=1))  # where the workers keep their numbers
    run.does(TrainingBegan())
    assert run.after("server-0") == expected


def test_a_run_that_is_lost_five_times_without_a_new_checkpoint_ends():
    run = Run(3)
    for checkpoint in range(2, 9):
        run.does(CheckpointComplete(checkpoint))
        for _ in range(MOST_LOSSES - 1):  # a new checkpoint restarts the count
            assert run.after("server-0") == again("server-0", checkpoint=checkpoint)
    reason = f"server-0 {KILLED}: the 5th loss since checkpoint 8; the run ends"
    assert run.after("server-0") == EndRun(reason, [Loss("server-0", KILLED)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checkpoint": 0, "no_checkpoint": "; set checkpoint"}, "; set checkpoint"),
        ({"on_server_loss": "stop"}, ""),
        (
            {"can_begin_again": False},
            "; its workers were started elsewhere, so start them again with outpace serve "
            "--resume: it continues from checkpoint 1",
        ),
    ],
)
def test_a_run_that_is_not_to_begin_again_ends_with_the_loss(changes, words):
    lost = [Loss("server-0", KILLED)]
    assert Run(**changes).after("server-0") == EndRun(f"server-0 {KILLED}{words}", lost)


def test_without_servers_a_worker_that_has_trained_is_missed_by_no_one():
    run = Run(3, 0, rules=PEERS)
    assert isinstance(run.after(0), BeginAgain)
    run.does(WorkerTrained(0))
    assert run.lose(0) == [Removed(0, 0)]
    losses = [Loss("worker-1", KILLED)]
    assert run.does(ProcessesLost(losses, is_ending=True)) == [Removed(1, 0)]


# -- other numbers of processes ----------------------------------------------------------------

MORE = AskedToScale(workers=3, asker="me", at=7)


def test_new_roles_get_places_and_all_begin_again_from_a_checkpoint_that_is_taken_then():
    run = Run()
    assert run.does(AskedToScale(workers=2, servers=2)) == []  # it has them
    assert run.does(MORE) == [Reserve(["worker-2"])]
    assert run.does(CheckpointComplete(2)) == []  # there are no places yet
    assert run.does(PlacesFound()) == [Save()]
    with pytest.raises(ProtocolError):
        run.does(MORE)  # one change at a time
    why = "the run begins again with 3 workers and 2 servers, from checkpoint 3"
    assert run.does(CheckpointComplete(3)) == [BeginAgain(why, 3, 2, 3)]
    run.does(AllBegin(3, 2, checkpoint=3))
    assert run.does(TrainingBegan()) == [Scaled("me", before=(2, 2), asked_at=7)]
    assert run.does(AskedToScale(servers=1)) == [Save()]
    (order,) = run.does(CheckpointComplete(4))
    assert isinstance(order, BeginAgain)
    assert (order.workers, order.servers) == (3, 1)


@pytest.mark.parametrize("is_lost", [True, False])
def test_if_the_new_processes_do_not_come_to_train_all_begin_again_as_before(is_lost):
    run = Run()
    run.does(MORE)
    run.does(PlacesFound())
    run.does(CheckpointComplete(3))
    run.does(AllBegin(3, 2, checkpoint=3))
    orders = run.lose(2) if is_lost else run.does(AttemptFailed("worker-2 did not join"))
    words = f"worker-2 {KILLED}" if is_lost else "worker-2 did not join"
    why = "the run begins again with 2 workers and 2 servers, from checkpoint 3"
    unchanged = Unchanged("me", f"the run does not change: {words}")
    assert orders == [BeginAgain(why, 2, 2, 3), unchanged]
    run.does(AllBegin(2, 2, checkpoint=3))
    assert run.does(AttemptFailed("again")) == [EndRun("again")]


def test_a_cluster_with_too_few_places_begins_with_as_many_and_cannot_return():
    run = Run(has_begun=False)
    order = BeginAgain("no room for worker-1", 1, 2, 1)
    assert run.does(TooFewPlaces("no room for worker-1", workers=1, at=5)) == [order]
    run.does(AllBegin(1, 2, checkpoint=1))
    assert run.does(AttemptFailed("worker-0 did not join")) == [EndRun("worker-0 did not join")]
    assert run.does(TrainingBegan()) == [Scaled("", (2, 2), 5)]
