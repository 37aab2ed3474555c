"""Meetings: which workers continue when, and when the coordinator gives up."""

from __future__ import annotations

import pytest
from tests.support.kernels import run_for

from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.without_servers import HostedMeetings
from outpace.real.net.peer_messages import EndMeeting, TakePart
from outpace.sync.messages import Leave

NAMES = ["worker-0", "worker-1", "worker-2"]


class Host:
    """Meetings of three workers in virtual time."""

    def __init__(self, timeout_s: float = 5.0) -> None:
        self.kernel, self.told = Kernel(), []
        self.meetings = HostedMeetings(
            self.kernel, NAMES, timeout_s, lambda name, message: self.told.append((name, message))
        )

    def come(self, *workers: int, last: bool = False) -> list[int]:
        """Return the numbers of the workers that continue."""
        self.told.clear()
        for worker in workers:
            assert self.meetings.take(NAMES[worker], TakePart("meeting", last=last))
        return self.went_on()

    def went_on(self) -> list[int]:
        ended = EndMeeting(self.kernel.now)
        assert all(message == ended for _, message in self.told)
        return sorted(int(name[-1]) for name, _ in self.told)

    def lose(self, worker: int) -> list[int]:
        self.told.clear()
        self.meetings.lose(NAMES[worker])
        return self.went_on()


def test_a_meeting_is_over_when_all_have_come():
    host = Host()
    assert host.come(2, 0) == []
    assert host.come(1) == [0, 1, 2]
    assert host.come(0, 1) == []
    assert host.come(2) == [0, 1, 2]


def test_a_worker_that_comes_for_the_last_time_is_waited_for_no_more():
    host = Host()
    assert host.come(0) == []
    assert host.come(1, last=True) == []
    assert host.come(2) == [0, 2]
    assert host.come(2, 0) == [0, 2]
    host.told.clear()
    assert not host.meetings.take(NAMES[1], Leave(1))  # the others must also be informed
    assert host.come(0, 2) == [0, 2]


def test_a_worker_that_is_lost_is_waited_for_no_more():
    host = Host()
    host.come(0, 2)
    assert host.lose(1) == [0, 2]
    host.come(0)
    assert host.lose(0) == []
    assert host.come(2) == [2]


def test_a_worker_that_does_not_come_in_time_ends_the_run_by_name():
    host = Host(timeout_s=5.0)
    host.come(0, 1, 2)
    host.come(0)
    run_for(host.kernel, 4.0)
    assert host.come(1) == []
    with pytest.raises(RunError, match=r"worker-2 did not come .* within 5 s"):
        run_for(host.kernel, 1.5)
