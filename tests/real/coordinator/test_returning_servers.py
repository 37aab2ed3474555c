"""What the coordinator keeps for a server that comes back alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from outpace.config.reading import experiment_from
from outpace.kernel import Kernel
from outpace.real.coordinator.evaluation.snapshots import Snapshots
from outpace.real.coordinator.policy_changes import PolicyChanges
from outpace.real.coordinator.status import StatusOfRun
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import ChangePolicy, Snapshot, TakeSnapshot
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
