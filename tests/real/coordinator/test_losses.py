"""The error about a lost process: the most direct report is used, in any order of reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.kernels import run_for

from outpace.errors import RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.losses import Losses
from outpace.real.net.report_messages import ProcessFailed
from outpace.support.units import nanoseconds, seconds
from outpace.sync.membership.decide import Membership
from outpace.sync.membership.events import (
    AllBegin,
    Event,
    Loss,
    ProcessesLost,
    Rules,
    TrainingBegan,
)


class Listening:
    """A listener whose messages are all read."""

    unread = False

    def __init__(self) -> None:
        self.peers: list[str] = []


class Lost:
    """Losses in virtual time, of a run that continues without lost workers if `continues`."""

    def __init__(self, *, continues: bool = True) -> None:
        self.kernel = Kernel()
        self.said: list[tuple[float, str]] = []
        self.members = Membership(Rules("continue"))
        self.members.take(AllBegin(2, 1), 0)
        self.members.take(TrainingBegan(), 0)

        def take_losses(losses: Sequence[Loss]) -> None:
            self.said += [(seconds(self.kernel.now), str(loss)) for loss in losses]
            if not continues:
                raise RunError(str(losses[0]))
            if not self.decide(losses):
                tell(ProcessesLost(losses))

        def tell(event: Event) -> None:
            self.members.take(event, self.kernel.now)
            self.run_state.table = self.members.table

        self.decide: Callable[[Sequence[Loss]], bool] = lambda losses: False
        self.listener = Listening()
        self.launcher = SimpleNamespace(is_ending=lambda name: False)
        self.run_state: Any = SimpleNamespace(
            kernel=self.kernel,
            listener=self.listener,
            servers=["server-0"],
            table=self.members.table,
            suspects={},
            launcher=self.launcher,
            early=False,
            setting=SimpleNamespace(lease_s=10.0),
        )
        self.survival: Any = SimpleNamespace(
            take_losses=take_losses,
            tell=tell,
            is_replaced=lambda name: False,
            killed_at_its_end=lambda name: None,
        )
        self.losses = Losses(self.run_state, self.survival)

    def at(self, time_s: float, call, *arguments) -> None:
        self.kernel.call_at(nanoseconds(time_s), lambda _: call(*arguments))

    def run(self) -> None:
        run_for(self.kernel, 60.0)


def test_the_launchers_report_wins_though_it_comes_long_after_the_end_of_the_connection():
    lost = Lost()
    lost.launcher.is_ending = lambda name: name == "worker-1"  # until it is reported
    lost.at(1.0, lost.losses.connection_lost, "worker-1")
    lost.at(6.0, lost.losses.process_ended, "worker-1", "was killed by SIGKILL")
    lost.run()
    ((when, said),) = lost.said
    assert said == "worker-1 was killed by SIGKILL before it was done"
    assert 6.0 <= when < 7.0


def test_a_connection_of_a_process_that_is_alive_is_lost_after_half_a_second():
    lost = Lost()
    lost.at(1.0, lost.losses.connection_lost, "worker-1")
    lost.run()
    assert lost.said == [
        (1.5, "worker-1 is lost: its connection closed, or was silent for 10 s"),
    ]


def test_an_end_that_the_launcher_never_reports_is_not_waited_for_without_end():
    lost = Lost(continues=False)
    lost.launcher.is_ending = lambda _: True
    lost.at(1.0, lost.losses.connection_lost, "worker-1")
    with pytest.raises((RunError, WalkerError), match="its connection closed"):
        lost.run()
    assert 11.0 < lost.said[0][0] < 12.0


def test_the_end_of_a_process_that_is_replaced_is_no_loss():
    lost = Lost()
    replaced = ["worker-1"]
    lost.survival.is_replaced = lambda name: name in replaced
    lost.at(1.0, lost.losses.process_ended, "worker-1", "was killed by SIGKILL")
    lost.at(2.0, replaced.clear)
    lost.at(3.0, lost.losses.process_ended, "worker-1", "was killed by SIGTERM")  # the successor
    lost.run()
    assert lost.said == [(3.25, "worker-1 was killed by SIGTERM before it was done")]


@pytest.mark.parametrize(
    ("how", "told"),
    [("was killed by SIGKILL", ["worker-1"]), ("ended with exit code 0", [])],
)
def test_a_process_that_is_killed_when_it_has_finished_is_told_of_and_no_loss(how, told):
    lost, killed = Lost(), []
    lost.survival.killed_at_its_end = killed.append
    lost.at(1.0, lost.losses.process_finished, "worker-1")
    lost.at(1.1, lost.losses.process_ended, "worker-1", how)
    lost.run()
    assert killed == told
    assert lost.said == []


def test_a_process_that_comes_back_is_awaited_and_can_be_lost_again():
    lost = Lost()
    known = []

    def comes_back(losses: Sequence[Loss]) -> bool:
        known.extend((loss.has_ended, loss.has_exited) for loss in losses)
        return True

    lost.decide = comes_back
    lost.at(1.0, lost.losses.connection_lost, "worker-1")
    lost.at(2.0, lost.losses.process_ended, "worker-1", "was killed by SIGKILL")
    lost.at(3.0, lost.losses.process_ended, "worker-1", "ended with exit code 3")
    lost.run()
    assert known == [(False, False), (True, False), (True, True)]
    assert lost.run_state.suspects == {}


LOST_SERVER = ProcessFailed("Lost", "worker-1 lost the connection to server-0", "server-0")


def test_a_server_that_a_worker_has_lost_is_lost_at_once_if_the_coordinator_does_not_hear_it():
    lost = Lost()
    lost.at(1.0, lost.losses.process_failed, "worker-1", LOST_SERVER)
    lost.run()
    assert lost.said == [(1.5, "server-0 is lost: worker-1 lost the connection to it")]


def test_a_worker_that_alone_cannot_reach_a_server_is_lost_itself():
    lost = Lost()
    lost.listener.peers = ["server-0"]
    lost.at(1.0, lost.losses.process_failed, "worker-1", LOST_SERVER)
    lost.at(1.1, lost.losses.process_ended, "worker-1", "ended with exit code 1")
    known = []

    def restart(losses: Sequence[Loss]) -> bool:
        known.extend((loss.has_ended, loss.has_exited) for loss in losses)
        return True

    lost.decide = restart
    lost.run()
    said = "worker-1 lost the connection to server-0, which others still have"
    assert lost.said == [(11.25, said)]  # a lease after the report
    assert known == [(True, False)]  # so it can be restarted
