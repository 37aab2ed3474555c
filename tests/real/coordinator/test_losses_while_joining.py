"""Processes are lost, or fail, while workers or servers join a run."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError, RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.moving import MovingServers
from outpace.real.coordinator.observers import Observers
from outpace.real.coordinator.parts import Parts
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.recovery.processes import Processes
from outpace.real.coordinator.recovery.replacements import Replacements
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.net.membership_messages import DataDivided, ReplaceWorker, WorkerReplaced
from outpace.real.net.messages import Go, JoinRun, Plan, ProcessDone, Ready
from outpace.real.noting import Noting
from outpace.record.event_log import LOG, EventLog
from outpace.record.recovery import Recovery
from outpace.record.trace import TraceRows

KILLED = "was killed by SIGKILL"


class Run:
    """Two servers and three workers, which train.

    said: what the log of the run says. told: the ends of changes. did: what was done with
    processes, in order. sent: to whom which message. refused: processes, and why.
    """

    def __init__(self, on_worker_loss: str = "restart", script: str = "") -> None:
        self.said: list[str] = []
        self.told: list[tuple[bool, str]] = []
        self.did: list[tuple[Any, ...]] = []
        self.kernel, self.observers = Kernel(), Observers()
        note, nothing = self.did.append, lambda *_, **__: None
        self.sent: list[tuple[str, Any]] = []
        self.refused: list[tuple[str, str]] = []
        listener: Any = SimpleNamespace(
            send=lambda name, message, block=None: self.sent.append((name, message)),
            replace=nothing,
            refuse=lambda name, why: self.refused.append((name, why)),
            unread=False,
            peers=[],
        )
        self.servers, self.workers = ["server-0", "server-1"], ["worker-0", "worker-1", "worker-2"]
        self.losses = Losses(
            self.kernel,
            listener,
            self.servers,
            10.0,
            lambda lost: Parts._goes_on_without(self.parts, lost),
            nothing,
        )
        self.losses.drops = lambda name, how: Parts._drops(self.parts, name, how)
        unused: Any = None
        reports = Reports(
            listener,
            unused,
            self.losses,
            nothing,
            totals_of={},
            trace=unused,
            log=self.said.append,
            first_gradients=unused,
            workers=3,
            timing=unused,
            checkpoints=None,
            observer=unused,
            warn=self.said.append,
        )
        reports.joined = dict.fromkeys(self.servers + self.workers, JoinRun("", 7, layers=[4]))
        reports.plan = Plan(
            ["a", "b"], [], layers=[4], bounds=[0, 2, 4], dtype="float32", digest=""
        )
        self.reports = reports
        task = {"kind": "quadratic", "eigenvalues": [1.0] * 4}
        if script:
            task = {"kind": "script", "path": script}
        experiment = experiment_from(
            {
                "task": task,
                "workers": 3,
                "servers": 2,
                "sync": {"kind": "asp"},
                "on_worker_loss": on_worker_loss,
                "stop": {"iterations": 5},
            },
            "the test",
        )
        self.processes = Processes(
            start=lambda worker, generation: note(("start", worker)),
            join_server=lambda server: self.starts("server", server),
            join_worker=lambda worker, *_: self.starts("worker", worker),
            kill=lambda name: note(("kill", name)),
            release=lambda name: note(("release", name)),
        )
        self.fails: dict[tuple[str, int], Exception] = {}  # of processes that cannot be started
        self.kept = KeptScripts(experiment, listener, None, lambda: None)
        run = RunAround(
            experiment,
            120.0,
            self.kernel,
            listener,
            self.losses,
            reports,
            self.processes,
            nothing,
            nothing,
            self.observers,
            self.said.append,
            self.kept,
            lambda: Go(0, ""),
            lambda: None,
        )
        self.replacements = Replacements(run, list(self.servers), [], unused, passes_over=False)
        self.scaling = self.replacements.let_workers_scale(
            self.workers, self.servers, None, lambda: False
        )
        self.moving = MovingServers(
            run,
            self.servers,
            self.workers,
            unused,
            checkpoints=None,
            replacements=self.replacements,
            scaling=self.scaling,
        )
        survival = SimpleNamespace(go_on_without=self.replacements.take_losses)
        self.parts: Any = SimpleNamespace(
            moving=self.moving, scaling=self.scaling, servers=self.servers, survival=survival
        )

    def starts(self, kind: str, number: int) -> str:
        self.did.append(("join", kind, number))
        if (error := self.fails.get((kind, number))) is not None:
            raise error
        return ""

    def joins(self, *workers: int) -> None:
        """The processes of these workers are there, and the servers are told of them."""
        for worker in workers:
            assert self.replacements.take(f"worker-{worker}", JoinRun("", 9, layers=[4]))

    def confirms(self, worker: int, clock: int) -> None:
        """The servers confirm what they were told last of this worker, which has pushed nothing."""
        told = [order for _, order in self.sent if isinstance(order, ReplaceWorker)]
        newest = max(order.generation for order in told if order.worker == worker)
        for server in self.servers:
            self.replacements.take(server, WorkerReplaced(worker, newest, -1, clock))

    def tell(self, *, is_done: bool, text: str) -> None:
        self.told.append((is_done, text))

    def go_on(self, *lost: str) -> None:
        """Say that these processes were killed, and let ten seconds pass."""
        for name in lost:
            self.losses.process_ended(name, KILLED)

        async def pause() -> None:
            await self.kernel.sleep(10.0)

        self.kernel.spawn(pause(), "the test")
        self.kernel.run()


def test_a_worker_is_replaced_though_one_that_joins_is_lost_at_the_same_moment():
    run = Run()
    run.scaling.scale(4, run.tell)
    run.go_on("worker-1", "worker-3")
    assert run.told == [(False, f"the number of workers stays 3: worker-3 {KILLED}")]
    assert run.replacements.is_recovering  # worker-1
    assert not run.scaling.is_changing


def test_a_worker_is_replaced_though_a_server_that_joins_is_lost_at_the_same_moment():
    run = Run()
    run.moving.scale(3, run.tell)
    run.go_on("worker-1", "server-2")
    assert run.told == [(False, f"the number of servers stays 2: server-2 {KILLED}")]
    assert run.replacements.is_recovering
    assert not run.moving.is_changing


def test_the_end_of_a_run_names_the_process_that_it_needed_and_not_one_that_was_to_join():
    run = Run(on_worker_loss="stop")
    run.scaling.scale(4, run.tell)
    with pytest.raises((RunError, WalkerError), match=f"worker-1 {KILLED}"):
        run.go_on("worker-3", "worker-1")
    assert run.told == [(False, f"the number of workers stays 3: worker-3 {KILLED}")]


def _left(run: Run, worker: int) -> None:
    """The last worker has been told to leave, and has."""
    run.scaling.scale(worker, run.tell)
    assert run.replacements.take(f"worker-{worker}", ProcessDone()) is False
    run.losses.process_finished(f"worker-{worker}")
    run.losses.process_ended(f"worker-{worker}", "ended with exit code 0")
    assert not run.scaling.is_changing
    run.told.clear()


@pytest.mark.parametrize("how", [KILLED, "ended with exit code 1"])
def test_a_worker_that_left_and_is_asked_back_is_dropped_if_it_ends_before_it_joins(how):
    run = Run()
    _left(run, 2)
    run.scaling.scale(3, run.tell)
    run.losses.process_ended("worker-2", how)
    run.go_on()
    assert run.told == [(False, f"the number of workers stays 2: worker-2 {how}")]
    assert not run.scaling.is_changing


def test_a_run_does_not_wait_for_the_end_of_a_worker_that_is_asked_back_and_has_not_joined():
    run = Run()
    _left(run, 2)
    run.scaling.scale(3, run.tell)
    assert run.losses.awaited(run.workers) == ["worker-0", "worker-1"]


@pytest.mark.parametrize(
    "error", [OSError(11, "Resource temporarily unavailable"), ConfigError("no such node")]
)
def test_workers_stay_as_they_are_if_the_process_of_one_cannot_be_started(error):
    run = Run()
    run.fails["worker", 4] = error
    why = f"the number of workers stays 3: worker-4 could not be started: {error}"
    assert run.scaling.scale(5, run.tell) == why
    assert run.told == [(False, why)]
    assert ("kill", "worker-3") in run.did
    run.fails.clear()
    assert run.scaling.scale(5) == "worker-3, worker-4 will join"


def test_servers_stay_as_they_are_if_the_process_of_one_cannot_be_started():
    run = Run()
    run.fails["server", 3] = OSError(11, "Resource temporarily unavailable")
    why = "the number of servers stays 2: server-3 could not be started: [Errno 11] Resource"
    assert run.moving.scale(4, run.tell).startswith(why)
    assert [is_done for is_done, _ in run.told] == [False]
    assert ("kill", "server-2") in run.did
    run.fails.clear()
    assert run.moving.scale(3) == "server-4 will join"


def _given_up(run: Run, worker: int, generation: int = 1) -> None:
    """This worker is lost, and there is no room for the process that takes its place."""
    name = f"worker-{worker}"
    run.go_on(name)
    assert run.replacements.coming_back == [name]
    for server in run.servers:
        run.replacements.take(server, WorkerReplaced(worker, generation, 3, 3))
    assert run.did[-1] == ("start", worker)
    run.replacements.goes_without(name)
    for server in run.servers:
        run.replacements.take(server, WorkerReplaced(worker, generation + 1, 3, 4))
    assert run.replacements.coming_back == []
    assert run.replacements.is_settled
    assert run.scaling.absent == [worker]
    assert name not in run.losses.awaited(run.workers)


def test_a_lost_worker_without_room_is_given_up_and_joins_again_when_it_is_asked_for():
    run = Run()
    _given_up(run, 1)
    assert ("release", "worker-1") in run.did
    run.losses.process_ended("worker-1", "found no room")  # its host is ended
    run.go_on()
    assert not run.replacements.is_recovering
    assert run.scaling.scale(4, without=["worker-1"]) == "worker-3 will join"
    run = Run()
    _given_up(run, 1)
    assert run.scaling.scale(3) == "worker-1 will join"
    assert run.did[-1] == ("join", "worker", 1)


def test_restarts_do_not_count_a_process_for_which_there_was_no_room(tmp_path):
    run, recovery, events = Run(), Recovery(), EventLog(tmp_path / LOG)
    events.open()
    noting: Any = Noting(events, TraceRows(lambda table: None), recovery)
    noting.attach(SimpleNamespace(clock=run.kernel, observers=run.observers))
    run.go_on("worker-2")  # there is room for its next process
    run.confirms(2, clock=4)
    run.joins(2)
    assert run.replacements.take("worker-2", Ready())
    _given_up(run, 1, generation=2)
    assert recovery.restarts == 1
    logged = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [(each["event"], each["role"], each["generation"]) for each in logged] == [
        ("restarted", "worker-2", 1),
        ("restarted", "worker-1", 2),
        ("not-restarted", "worker-1", 2),
    ]


def test_restarts_count_no_process_that_was_not_to_be_started_yet():
    run, recovery = Run(), Recovery()
    noting: Any = Noting(EventLog(), TraceRows(lambda table: None), recovery)
    noting.attach(SimpleNamespace(clock=run.kernel, observers=run.observers))
    run.go_on("worker-1")
    run.replacements.goes_without("worker-1")
    run.confirms(1, clock=4)
    assert recovery.restarts == 0


def test_restarts_count_no_process_that_joins_either_when_it_is_given_up():
    """Its node is gone, and its loss is not known yet."""
    run, recovery = _joining(3), Recovery()
    noting: Any = Noting(EventLog(), TraceRows(lambda table: None), recovery)
    noting.attach(SimpleNamespace(clock=run.kernel, observers=run.observers))
    run.confirms(3, clock=9)
    run.replacements.goes_without("worker-3")
    run.go_on()
    run.confirms(3, clock=9)
    assert recovery.restarts == 0
    assert run.scaling.absent == [3]
    assert [is_done for is_done, _ in run.told] == [True]


def test_the_data_of_the_last_worker_go_to_the_others_when_it_was_given_up():
    run = Run()
    _given_up(run, 2)
    assert run.scaling.scale(2, run.tell) == "the data are for 2 workers"
    assert not run.scaling.is_changing
    assert (run.scaling.workers, run.scaling.absent) == (2, [])
    done, text = run.told[0]
    assert done
    assert text.startswith("the run goes on with 2 workers, from iteration ")


def test_a_worker_that_takes_part_is_not_given_up():
    run = Run()
    with pytest.raises(ConfigError, match="worker-1 is not coming back"):
        run.replacements.goes_without("worker-1")


def test_servers_that_are_to_leave_are_replaced_by_others():
    run = Run()
    assert run.moving.scale(2, without=["server-0"]) == "server-2 will join, server-0 will leave"
    assert run.did[-1] == ("join", "server", 2)


def _joining(*workers: int, on_worker_loss: str = "restart") -> Run:
    """The servers have been told of these workers, and have not confirmed it."""
    run = Run(on_worker_loss)
    run.scaling.scale(3 + len(workers), run.tell)
    run.joins(*workers)
    return run


def test_a_worker_that_is_killed_before_the_servers_have_confirmed_that_it_joins_is_replaced():
    run = _joining(3)
    run.losses.process_ended("worker-3", KILLED)
    run.losses.connection_lost("worker-3")
    run.go_on()
    assert run.replacements.coming_back == ["worker-3"]
    run.confirms(3, clock=9)
    assert run.did[-1] == ("start", 3)


def _divided(run: Run) -> list[tuple[str, DataDivided]]:
    return [(name, message) for name, message in run.sent if isinstance(message, DataDivided)]


def test_data_are_for_all_workers_from_the_start_of_one_that_was_lost_as_it_joined():
    run = _joining(3)
    run.go_on("worker-3")
    assert (_divided(run), run.told, run.scaling.is_changing) == ([], [], True)
    run.confirms(3, clock=9)
    assert _divided(run) == [(name, DataDivided(9, 4)) for name in run.workers]
    ((is_done, text),) = run.told
    assert is_done
    assert text.startswith("the run goes on with 4 workers, from iteration 9 on")
    run.joins(3)
    ((name, plan),) = [(name, each) for name, each in run.sent if isinstance(each, Plan)]
    assert (name, plan.first[3], plan.data) == ("worker-3", 9, [(0, 3), (9, 4)])


def test_a_worker_that_was_lost_as_it_joined_has_not_done_the_iterations_before_its_first():
    run = _joining(3)
    run.go_on("worker-3")
    run.confirms(3, clock=9)
    assert run.reports.totals.iterations.get(3, 0) == 0
    assert run.scaling.iteration(3) == 9


def test_if_all_workers_that_join_are_lost_the_first_that_starts_again_divides_the_data():
    run = _joining(3, 4)
    run.go_on("worker-3", "worker-4")
    run.confirms(4, clock=9)
    assert run.did[-1] == ("start", 4)
    assert _divided(run) == [(name, DataDivided(9, 5)) for name in run.workers]
    run.confirms(3, clock=9)
    assert run.did[-1] == ("start", 3)
    assert len(_divided(run)) == 5
    assert run.reports.totals.iterations == {3: 0, 4: 0}
    assert [is_done for is_done, _ in run.told] == [True]


def test_if_another_worker_joins_the_data_are_divided_at_its_start():
    run = _joining(3, 4)
    run.go_on("worker-3")
    run.confirms(4, clock=9)
    assert _divided(run) == [(name, DataDivided(9, 5)) for name in run.workers]
    assert run.told == []
    run.replacements.take("worker-4", Ready())
    assert [is_done for is_done, _ in run.told] == [True]
    run.confirms(3, clock=9)
    assert run.did[-1] == ("start", 3)
    assert len(_divided(run)) == 5
    assert run.scaling.iteration(3) == 9


def test_the_data_are_divided_at_the_start_of_the_first_worker_of_those_that_join():
    run = _joining(3, 4)
    run.go_on("worker-3")
    run.confirms(3, clock=9)
    assert run.did[-1] == ("start", 3)
    assert _divided(run) == [(name, DataDivided(9, 5)) for name in run.workers]
    assert run.told == []
    run.confirms(4, clock=9)
    run.replacements.take("worker-4", Ready())
    assert len(_divided(run)) == 5
    assert [is_done for is_done, _ in run.told] == [True]


def test_data_are_for_all_workers_though_those_that_joined_are_lost_for_good():
    """The lost worker's share waits for it, and the others hear of that before they begin."""
    run = _joining(3, on_worker_loss="continue")
    run.go_on("worker-3")
    assert _divided(run) == [(name, DataDivided(1, 4)) for name in run.workers]
    ((is_done, text),) = run.told
    assert is_done
    assert text.startswith("the run goes on with 4 workers without worker-3, from iteration 1 on")


def test_data_are_for_all_workers_though_there_is_no_room_for_one_that_was_lost_as_it_joined():
    run = _joining(3)
    run.go_on("worker-3")
    run.replacements.goes_without("worker-3")
    run.go_on()
    assert _divided(run) == [(name, DataDivided(1, 4)) for name in run.workers]
    assert [is_done for is_done, _ in run.told] == [True]
    assert run.scaling.absent == [3]
