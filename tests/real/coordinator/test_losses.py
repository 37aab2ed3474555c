"""What is said of a process that is lost: the most direct report wins, whenever it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outpace.errors import RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.losses import Losses
from outpace.support.units import nanoseconds, seconds


class Listening:
    """A listener whose messages are all read."""

    unread = False
    peers: tuple[str, ...] = ()


class Lost:
    """Losses in virtual time, of a run that goes on without lost workers if `go_on`."""

    def __init__(self, *, go_on: bool = True) -> None:
        self.kernel = Kernel()
        self.said: list[tuple[float, str]] = []

        def without(lost) -> bool:
            self.said += [(seconds(self.kernel.now), str(error)) for error in lost.values()]
            return self.decide(lost)

        self.decide: Callable[[Any], bool] = lambda lost: go_on
        self.losses = Losses(self.kernel, Listening(), [], 10.0, without, lambda *_: None)

    def at(self, time_s: float, call, *arguments) -> None:
        self.kernel.call_at(nanoseconds(time_s), lambda _: call(*arguments))

    def run(self) -> None:
        async def last() -> None:
            await self.kernel.sleep(60.0)

        self.kernel.spawn(last())
        self.kernel.run()


def test_the_launchers_report_wins_though_it_comes_long_after_the_end_of_the_connection():
    lost = Lost()
    lost.losses.is_ending = lambda name: name == "worker-1"  # until it is reported
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
    lost = Lost(go_on=False)
    lost.losses.is_ending = lambda _: True
    lost.at(1.0, lost.losses.connection_lost, "worker-1")
    with pytest.raises((RunError, WalkerError), match="its connection closed"):
        lost.run()
    assert 11.0 < lost.said[0][0] < 12.0


def test_a_launcher_that_was_stopped_longer_than_a_lease_blames_itself():
    lost = Lost(go_on=False)
    lost.losses.stood_still_s = lambda: 12.3
    lost.at(1.0, lost.losses.process_ended, "worker-1", "ended with exit code 1")
    with pytest.raises(
        (RunError, WalkerError), match="this process, which leads the run, had been"
    ):
        lost.run()


def test_the_end_of_a_process_that_is_replaced_is_no_loss():
    lost = Lost()
    replaced = ["worker-1"]
    lost.losses.is_replaced = lambda name: name in replaced
    lost.at(1.0, lost.losses.process_ended, "worker-1", "was killed by SIGKILL")
    lost.at(2.0, replaced.clear)
    lost.at(3.0, lost.losses.process_ended, "worker-1", "was killed by SIGTERM")  # the successor
    lost.run()
    assert lost.said == [(3.25, "worker-1 was killed by SIGTERM before it was done")]


def test_a_process_that_comes_back_is_awaited_and_can_be_lost_again():
    lost = Lost()
    known = []

    def comes_back(losses_of: Any) -> bool:
        known.append((lost.losses.has_ended("worker-1"), lost.losses.has_exited("worker-1")))
        lost.losses.comes_back("worker-1")
        return True

    lost.decide = comes_back
    lost.at(1.0, lost.losses.connection_lost, "worker-1")
    lost.at(2.0, lost.losses.process_ended, "worker-1", "was killed by SIGKILL")
    lost.at(3.0, lost.losses.process_ended, "worker-1", "ended with exit code 3")
    lost.run()
    assert known == [(False, False), (True, False), (True, True)]
    assert lost.losses.awaited(["worker-0", "worker-1"]) == ["worker-0", "worker-1"]
