"""Workers without servers that are lost, and come back while the others go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from outpace.config.reading import experiment_from
from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.observers import RunObserver
from outpace.real.coordinator.recovery.losses import GroupLost
from outpace.real.coordinator.recovery.processes import Processes
from outpace.real.coordinator.recovery.rejoining import PeerReplacements
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.messages import Go, JoinRun, Plan, Ready
from outpace.real.net.peer_messages import JoinedOthers, Regroup
from outpace.record.totals import Totals
from outpace.sync.messages import Leave

NAMES = ["worker-0", "worker-1", "worker-2"]
PLAN = Plan([], [], [4], [0, 4], "float32", "d", store="tcp://127.0.0.1:1")


class Host:
    """The replacements of a run of three workers, and all that they do."""

    def __init__(self, *, has_checkpoint: bool = False) -> None:
        experiment = experiment_from(
            {
                "task": {"kind": "quadratic", "eigenvalues": [1.0] * 4},
                "workers": 3,
                "sync": {"kind": "hpsgd", "timeout_s": 50.0},
                "stop": {"iterations": 100},
            },
            "the test",
        )
        self.kernel = Kernel()
        self.sent: list[tuple[str, Any]] = []
        self.started, self.given_up, self.began = [], [], []
        self.refused, self.heard, self.said, self.without = [], [], [], []
        listener: Any = SimpleNamespace(
            send=lambda name, message, block=None: self.sent.append((name, message)),
            refuse=lambda name, why: self.refused.append((name, why)),
            replace=lambda name, generation, returns=True: self.heard.append((name, generation)),
        )
        losses: Any = SimpleNamespace(
            away=set(),
            comes_back=lambda name: None,
            goes_without=self.without.append,
            has_exited=lambda name: False,
            has_ended=lambda name: True,
            finished=set(),
        )
        reports: Any = SimpleNamespace(
            left=set(),
            plan=PLAN,
            totals=Totals(iterations={1: 12}),
            begins_again=lambda *what: None,
            has_joined=lambda *what: self.began.append(what),
        )
        self.architecture = WithoutServers(
            experiment, self.kernel, listener, lambda *_: None, PLAN.store
        )
        store: Any = SimpleNamespace(replace=lambda *what: self.heard.append(what))
        start = lambda worker, generation: self.started.append((worker, generation))  # noqa: E731
        self.replacements = PeerReplacements(
            RunAround(
                experiment,
                20.0,
                self.kernel,
                listener,
                losses,
                reports,
                Processes(start),
                self.given_up.append,
                lambda *what: self.began.append(what),
                RunObserver(),
                self.said.append,
                KeptScripts(experiment, listener, None, lambda: None),
                lambda: Go(0, "here"),
                lambda: None,
            ),
            self.architecture,
            store,
            None,
            lambda name: has_checkpoint,
        )

    def lose(self, name: str) -> bool:
        lost = {name: RunError(f"{name} was killed by SIGKILL")}
        taken = self.replacements.can_take(lost) and self.replacements.take_losses(lost)
        self.wait(0.0)
        return taken

    def hear(self, name: str, *messages: Any) -> list[tuple[str, Any]]:
        """Return what is sent because of these messages."""
        self.sent.clear()
        for message in messages:
            if not self.replacements.take(name, message):
                self.architecture.take(name, message, None)
        return list(self.sent)

    def wait(self, seconds: float) -> None:
        async def sleeper() -> None:
            await self.kernel.sleep(seconds)

        self.kernel.spawn(sleeper(), "the test")
        self.kernel.run()


def join_run() -> JoinRun:
    return JoinRun("1", 1, layers=[4], dtype="float32", digest="d")


def test_a_lost_worker_is_fenced_started_given_the_model_and_counted_on_again():
    host = Host()
    assert host.lose("worker-1")
    assert host.sent == [(name, Regroup(1, [0, 2])) for name in NAMES]
    assert host.heard == [("worker-1", 1), ("worker-1", 1)]  # at the coordinator and the store
    assert host.started == [(1, 1)]
    assert host.replacements.comes_back("worker-1")
    ((name, plan),) = host.hear("worker-1", join_run())
    assert (name, plan.late, plan.store) == ("worker-1", True, PLAN.store)
    told = [("worker-1", Go(0, "here"))]
    told += [(name, Regroup(2, [0, 1, 2])) for name in ("worker-0", "worker-2", "worker-1")]
    assert host.hear("worker-1", Ready()) == told
    assert host.replacements.comes_back("worker-1")
    host.hear("worker-1", JoinedOthers(9, 8))
    assert host.began == [("worker-1", 1, 1, 9, 8), (1, 9)]
    assert not host.replacements.comes_back("worker-1")
    assert host.said == [
        "worker-1 was killed by SIGKILL; it is restarted (generation 1) while the others go on"
    ]
    host.wait(100)
    assert host.lose("worker-0")
    assert host.lose("worker-2")  # worker-1 has the model
    assert host.started == [(1, 1), (0, 2), (2, 3)]


def test_a_worker_that_dies_before_it_has_the_model_is_started_again():
    host = Host()
    host.lose("worker-1")
    host.hear("worker-1", join_run(), Ready())
    assert host.lose("worker-1")
    assert host.started == [(1, 1), (1, 2)]
    host.hear("worker-1", join_run(), Ready(), JoinedOthers(0, 0))
    host.wait(100)
    assert not host.replacements.comes_back("worker-1")


def test_a_worker_that_is_lost_with_the_last_model_does_not_come_back_alone():
    host = Host()
    host.lose("worker-1")
    host.lose("worker-2")
    host.hear("worker-1", join_run(), Ready())
    assert not host.lose("worker-0")
    assert not host.architecture.can_spare(["worker-0"])  # worker-1 would wait for ever


def test_the_last_that_trains_may_die_once_another_worker_has_ended_with_the_model():
    host = Host()
    host.lose("worker-1")
    host.hear("worker-1", join_run(), Ready())
    host.hear("worker-2", Leave(2))
    assert not host.lose("worker-0")
    assert host.architecture.can_spare(["worker-0"])  # what worker-2 has is the result


def test_a_worker_that_is_killed_when_it_has_left_does_not_come_back():
    host = Host()
    host.hear("worker-1", Leave(1))
    assert not host.lose("worker-1")


@pytest.mark.parametrize("ready", [False, True])
def test_all_begin_again_if_the_others_end_before_a_worker_is_back(ready):
    host = Host(has_checkpoint=True)
    host.lose("worker-1")
    if ready:
        host.hear("worker-1", join_run(), Ready())
    host.hear("worker-0", Leave(0))
    with pytest.raises(GroupLost, match="all others had finished before it was back") as caught:
        host.hear("worker-2", Leave(2))
    assert list(caught.value.names) == ["worker-1"]


@pytest.mark.parametrize("ready", [False, True])
def test_without_a_checkpoint_the_run_ends_without_it(ready):
    host = Host()
    host.lose("worker-1")
    if ready:
        host.hear("worker-1", join_run(), Ready())
    host.hear("worker-0", Leave(0))
    host.hear("worker-2", Leave(2))
    assert host.given_up == host.without == ["worker-1"]
    assert host.said[1:] == ["worker-1 was killed by SIGKILL; the others have finished without it"]
    host.wait(100)  # no limit is left


def test_a_worker_that_is_given_no_model_in_time_ends_the_run():
    host = Host()
    host.lose("worker-1")
    host.hear("worker-1", join_run(), Ready())
    host.wait(49)
    with pytest.raises(RunError, match=r"not given the model of the others within 50 s"):
        host.wait(2)


def test_a_process_that_is_not_ready_in_time_ends_the_run():
    host = Host()
    host.lose("worker-1")
    with pytest.raises(RunError, match=r"takes its place was not ready within 20 s"):
        host.wait(21)


def test_a_worker_that_joins_unasked_is_refused():
    host = Host()
    host.hear("worker-2", JoinedOthers(1, 1))
    assert host.refused == [("worker-2", "it joins the others, and was not asked to")]
    assert host.began == []
