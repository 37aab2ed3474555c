"""What the coordinator keeps for a server that comes back alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from outpace.config.reading import experiment_from
from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.evaluation.snapshots import Snapshots
from outpace.real.coordinator.policy_changes import PolicyChanges
from outpace.real.coordinator.recovery.losses import GroupLost
from outpace.real.coordinator.recovery.processes import Processes
from outpace.real.coordinator.recovery.replacements import Replacements
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.status import StatusOfRun
from outpace.real.net.block_frames import head_of
from outpace.real.net.membership_messages import (
    ReplaceWorker,
    ServerBack,
    ServerLost,
    ServerReturned,
    WorkerRejoined,
    WorkerReplaced,
)
from outpace.real.net.messages import (
    ChangePolicy,
    Go,
    JoinRun,
    Plan,
    Ready,
    ScriptOptimizer,
    Snapshot,
    StateLoaded,
    TakeSnapshot,
    TrainingDone,
)
from outpace.record.recovery import Recovery
from outpace.record.totals import Totals


class Told:
    """A listener: what was sent to whom."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []

    def send(self, name: str, message: Any, block: Any = None) -> None:
        self.messages.append((name, message))

    def since(self) -> list[tuple[str, Any]]:
        messages, self.messages = self.messages, []
        return messages


def test_a_server_hears_the_last_changes_again_that_its_configuration_does_not_make():
    experiment = experiment_from(
        {
            "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]},
            "workers": 2,
            "servers": 2,
            "sync": {"kind": "ssp", "staleness": 2},
            "sync_changes": [{"at_s": 2.0, "sync": {"kind": "asp"}}],
            "stop": {"iterations": 5},
        },
        "the test",
    )
    clock: Any = SimpleNamespace(now=0)
    listener: Any = Told()
    changes = PolicyChanges(experiment, clock, listener)
    first, last = ChangePolicy("policy", "first"), ChangePolicy("policy", "last")
    pull, push = ChangePolicy("pull", "mine.py:together"), ChangePolicy("push", "")
    clock.now = 1_000_000_000
    changes.tell(1, first)
    changes.tell(1, last)
    changes.tell(1, pull)
    changes.tell(0, push)
    assert listener.since() == [("server-1", each) for each in (first, last, pull)] + [
        ("server-0", push)
    ]
    changes.tell_again(1)
    assert listener.since() == [("server-1", last), ("server-1", pull)]
    clock.now = 3_000_000_000  # sync_changes have set another policy
    changes.tell_again(1)
    assert listener.since() == [("server-1", pull)]
    changes.tell(1, first)
    listener.since()
    changes.tell_again(1)
    assert [message for _, message in listener.since()] == [first, pull]


def test_snapshots_are_asked_for_again_and_have_no_part_of_the_lost_process():
    listener, found = Told(), []
    snapshots = Snapshots(
        ["server-0", "server-1"],
        listener.send,
        lambda blocks, at, done: found.append((torch.cat(blocks).tolist(), at.version)),
    )

    def answers(shard: int, version: int, value: float) -> None:
        block = torch.full((2,), value)
        snapshots.add(Snapshot(shard, version, 1, 0, 0, head_of(block)), block)

    assert snapshots._ask(40) == 1
    listener.since()
    answers(0, 40, 1.0)
    snapshots.forget(0)
    answers(1, 41, 2.0)
    assert found == []
    snapshots.ask_again(0)
    assert listener.since() == [("server-0", TakeSnapshot(1, 40))]
    answers(0, 43, 3.0)
    assert found == [([3.0, 3.0, 2.0, 2.0], 43)]


def test_the_status_names_a_server_that_comes_back():
    kernel, written = Kernel(), []
    names = ["server-0", "server-1", "worker-0"]
    coordinator: Any = SimpleNamespace(
        kernel=kernel,
        clock=kernel,
        started=True,
        servers=names[:2],
        workers=names[2:],
        iteration=lambda worker: 0,
        losses=SimpleNamespace(finished=set(), away={"server-1"}, awaited=lambda names: names),
        reports=SimpleNamespace(totals=Totals(), totals_of={}, joined=names, left=set()),
    )
    file: Any = SimpleNamespace(write=lambda *what: written.append(what))
    StatusOfRun(file, Recovery(), {"server-1": 1}).attach(coordinator)

    async def briefly() -> None:
        await kernel.sleep(0.5)

    kernel.spawn(briefly(), "the test")
    kernel.run()
    ((phase, _, _, _, processes, waits_for),) = written
    assert (phase, waits_for) == ("training", "server-1 to come back")
    assert [(each.state, each.generation) for each in processes] == [
        ("training", 0),
        ("returning", 1),
        ("training", 0),
    ]


class Run:
    """Two servers and two workers. `did` has what was done, in order."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.kernel = Kernel()
        note = self.did.append
        self.losses: Any = SimpleNamespace(
            finished=set(),
            away=set(),
            has_ended=lambda name: False,
            has_exited=lambda name: False,
            reporters=lambda name: [],
            comes_back=lambda name: None,
        )
        self.plan = Plan(["a", "b"], [], layers=[4], bounds=[0, 2, 4], dtype="float32", digest="")
        self.reports: Any = SimpleNamespace(
            joined={},
            left=set(),
            plan=self.plan,
            optimizers={},
            server_begins_again=lambda *_: None,
        )
        listener: Any = SimpleNamespace(
            send=lambda name, message: note((name, message)),
            replace=lambda name, generation, **_: note(("hear", name, generation)),
            refuse=lambda name, why: note(("refuse", name, why)),
        )
        observer: Any = SimpleNamespace(
            server_restarted=lambda *_: None,
            server_back=lambda *_: None,
            server_lacks=lambda server, lacks: note(("lacks", server, lacks.worker, lacks.lost)),
        )
        unused: Any = None
        experiment = experiment_from(
            {
                "task": {"kind": "quadratic", "eigenvalues": [1.0] * 4},
                "workers": 2,
                "servers": 2,
                "sync": {"kind": "asp"},
                "stop": {"iterations": 5},
            },
            "the test",
        )
        processes = self.processes = Processes(
            start_server=lambda server, generation: note(("start", server, generation)),
            kill=lambda name: note(("kill", name)),
        )
        self.replacements = Replacements(
            RunAround(
                experiment,
                120.0,
                self.kernel,
                listener,
                self.losses,
                self.reports,
                processes,
                unused,
                unused,
                observer,
                lambda _: None,
                SimpleNamespace(iteration=lambda worker: 0),
                lambda: Go(0, ""),
                lambda: None,
            ),
            ["server-0", "server-1"],
            [],
            unused,
            passes_over=False,
        )
        self.checkpoints: Any = SimpleNamespace(
            last=3, newest=4, hold=lambda: note("hold"), release=lambda: note("release")
        )
        snapshots: Any = SimpleNamespace(forget=lambda _: None, ask_again=lambda _: note("ask"))
        changes: Any = SimpleNamespace(tell_again=lambda server: note(("changes", server)))
        self.returning = self.replacements.let_servers_return(
            self.checkpoints, snapshots, changes, lambda: note("complete")
        )

    def since(self) -> list[Any]:
        did, self.did[:] = list(self.did), []
        return did

    def hear(self, name: str, message: Any) -> list[Any]:
        assert self.replacements.take(name, message)
        return self.since()


def test_a_server_comes_back_when_its_old_process_has_ended_and_workers_when_it_knows_them():
    run = Run()
    assert run.replacements.take_losses({"server-1": RunError("server-1 is lost: silent")})
    workers = ["worker-0", "worker-1"]
    assert run.since() == [
        ("hear", "server-1", 1),
        "hold",
        *((name, ServerLost(1)) for name in workers),
        ("kill", "server-1"),
    ]
    assert run.losses.is_replaced("server-1")  # the old process has ended
    assert run.since() == [("start", 1, 1)]
    join = JoinRun("", 7, endpoint="elsewhere")
    run.reports.joined["server-1"] = join
    assert run.hear("server-1", join) == [("server-1", run.plan)]
    assert run.hear("server-1", Ready()) == [("server-1", Go(0, "")), ("changes", 1)]
    told = [("server-1", ReplaceWorker(worker, 0, stays=True)) for worker in (0, 1)]
    assert run.hear("server-1", ServerBack(version=8, clock=2)) == told
    assert run.hear("server-1", WorkerReplaced(0, 0, 4, 2)) == []
    # A worker that joins now would not be heard at the new address yet.
    assert run.reports.plan.endpoints == ["a", "b"]
    back = ServerReturned(1, "elsewhere", 1, 8)
    found = run.hear("server-1", WorkerReplaced(1, 0, 5, 2))
    assert found == [*((name, back) for name in workers), "ask"]
    assert (run.reports.plan.endpoints, run.reports.plan.generations) == (
        ["a", "elsewhere"],
        [0, 1],
    )
    assert run.hear("server-1", WorkerRejoined(0, 9)) == [("lacks", 1, 0, 4)]
    assert not run.returning.is_over
    assert run.hear("server-1", WorkerRejoined(1, 6)) == ["release", "complete"]
    assert run.returning.is_over


def test_a_process_that_dies_as_it_comes_back_is_replaced_by_one_of_another_generation():
    run = Run()
    run.losses.has_ended = lambda name: True
    run.replacements.take_losses({"server-0": RunError("server-0 was killed")})
    run.kernel.run()
    assert run.since()[-1] == ("start", 0, 1)
    run.replacements.take_losses({"server-0": RunError("server-0 was killed")})
    run.kernel.run()
    did = run.since()
    assert did[0] == ("hear", "server-0", 2)
    assert did[-1] == ("start", 0, 2)
    why = ("refuse", "server-0", "it is no server that comes back")
    assert run.hear("server-0", ServerBack(0, 0)) == [why]  # before it has joined


def test_a_server_that_ended_itself_or_that_a_worker_gave_up_does_not_come_back_alone():
    for name, found in (("has_exited", True), ("reporters", ["worker-0"])):
        run = Run()
        setattr(run.losses, name, lambda _, found=found: found)
        assert not run.replacements.take_losses({"server-1": RunError("server-1 is lost")})
        assert run.since() == []


LOST = RunError("server-1 is lost")


def test_the_new_process_of_a_server_is_told_which_optimizer_a_script_gave_the_one_before():
    run = Run()
    optimizer = run.reports.optimizers["server-1"] = ScriptOptimizer("Adam", [{"lr": 0.1}], [[]])
    run.losses.has_ended = lambda name: True
    run.replacements.take_losses({"server-1": LOST})
    run.kernel.run()
    run.since()
    join = run.reports.joined["server-1"] = JoinRun("", 7, endpoint="elsewhere")
    assert run.hear("server-1", join) == [("server-1", run.plan), ("server-1", optimizer)]


def test_a_worker_whose_script_goes_on_after_the_training_is_not_awaited_by_a_server():
    run = Run()
    run.losses.has_ended = lambda name: True
    # Its message goes on to others that wait for it.
    assert not run.replacements.take("worker-1", TrainingDone(7))
    run.replacements.take_losses({"server-1": LOST})
    run.kernel.run()
    join = run.reports.joined["server-1"] = JoinRun("", 7, endpoint="elsewhere")
    run.hear("server-1", join)
    assert run.hear("server-1", ServerBack(version=8, clock=2)) == [
        ("server-1", ReplaceWorker(0, 0, stays=True)),
        ("server-1", ReplaceWorker(1, 0, stays=False)),
    ]
    run.hear("server-1", WorkerReplaced(0, 0, 4, 2))
    assert ("lacks", 1, 1, 3) in run.hear("server-1", WorkerReplaced(1, 0, 3, 2))
    assert run.hear("server-1", WorkerRejoined(0, 5)) == ["release", "complete"]


def test_servers_do_not_come_back_from_before_a_state_that_a_script_has_loaded():
    run = Run()
    run.hear(
        "worker-0", StateLoaded()
    )  # while checkpoint 4 is taken; 5 may begin before it is there
    for last, comes_back in ((3, False), (5, False), (6, True)):
        run.checkpoints.last = last
        assert run.replacements.take_losses({"server-1": LOST}) is comes_back
    with pytest.raises(GroupLost, match="loads a state of its optimizer while server-1 comes back"):
        run.hear("worker-0", StateLoaded())


def test_the_end_for_a_server_that_finds_no_place_says_which_room_was_missing():
    run = Run()
    run.processes.no_room = lambda names: f"the cluster has no room for {', '.join(names)}"
    run.losses.has_ended = lambda name: True
    run.losses.away.add("server-1")
    run.replacements.take_losses({"server-1": LOST})
    words = (
        r"server-1 was lost, and the process that takes its place was not ready within 120 s: "
        r"the cluster has no room for server-1; then go on from the last checkpoint \(--resume\)$"
    )

    async def wait() -> None:
        await run.kernel.sleep(200)

    run.kernel.spawn(wait(), "the test")
    with pytest.raises(RunError, match=words):
        run.kernel.run()
    run.kernel.close()
