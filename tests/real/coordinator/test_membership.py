"""Members of a run without servers, and the parameters of a group that changes."""

from __future__ import annotations

import pytest
import torch
from tests.support.kernels import run_for

from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.membership import Membership
from outpace.real.coordinator.snapshots import PeerSnapshots
from outpace.real.net.messages import Snapshot, TakeSnapshot
from outpace.real.net.peer_messages import (
    GroupBroken,
    Regroup,
    TakePart,
)
from outpace.sync.messages import Leave

NAMES = ["worker-0", "worker-1", "worker-2"]


class Team:
    """A membership in virtual time, and its messages."""

    def __init__(self, timeout_s: float = 5.0) -> None:
        self.kernel, self.told = Kernel(), []
        self.membership = Membership(
            self.kernel, NAMES, timeout_s, lambda name, message: self.told.append((name, message))
        )

    def hear(self, *said) -> list:
        """Return the messages that these reports of workers cause, by the workers' numbers."""
        self.told.clear()
        for worker, message in said:
            assert self.membership.take(NAMES[worker], message)
        return list(self.told)

    def joins(self, number: int, *workers: int) -> list:
        return self.hear(*((worker, TakePart("all-reduce", number)) for worker in workers))

    def wait(self, seconds: float) -> None:
        run_for(self.kernel, seconds)


def regroup(generation: int, members: list[int], *told: int) -> list:
    return [(NAMES[worker], Regroup(generation, members)) for worker in told]


def test_who_left_is_missed_when_the_others_come_to_what_it_did_not():
    team = Team()
    assert team.joins(0, 0, 1, 2) == []
    assert team.hear((1, Leave(1))) == []
    assert team.joins(1, 0) == regroup(1, [0, 2], 0, 1, 2)
    assert team.joins(1, 2) == []
    assert team.membership.here == ["worker-0", "worker-2"]


def test_who_is_lost_is_missed_at_once_and_the_last_needs_nobody():
    team = Team()
    for lost, members, told in ((0, [1, 2], (0, 1, 2)), (2, [1], (1, 2))):
        team.told.clear()
        team.membership.lose(NAMES[lost])
        generation = 3 - len(members)
        assert team.told == regroup(generation, members, *told)
    team.told.clear()
    team.membership.lose(NAMES[1])
    assert team.told == []
    assert team.membership.here == []


@pytest.mark.parametrize("first", ["the break", "the end"])
def test_a_group_that_broke_because_somebody_left_is_formed_anew_whichever_is_heard_first(first):
    team = Team()
    team.joins(0, 0, 1, 2)
    broken, leaves = (0, GroupBroken(0, "closed")), (2, Leave(2))
    said = [broken, leaves] if first == "the break" else [leaves, broken]
    assert team.hear(*said) == regroup(1, [0, 1], 0, 1, 2)
    team.wait(100)


def test_a_break_that_nobody_explains_ends_the_run_after_a_while():
    team = Team()
    team.hear((1, GroupBroken(0, "no route")))
    team.wait(29)
    with pytest.raises(RunError, match=r"^worker-1 cannot reach the other workers: no route$"):
        team.wait(2)


def test_who_does_not_come_in_time_ends_the_run():
    team = Team(timeout_s=5)
    team.joins(0, 0, 1, 2)
    team.joins(1, 1)
    team.wait(4)
    team.joins(1, 0)
    with pytest.raises(RunError) as caught:
        team.wait(2)
    assert str(caught.value) == (
        "worker-2 did not come to all-reduce 1 within 5 s (sync.timeout_s); "
        "worker-0, worker-1 waited"
    )


# -- the parameters --------------------------------------------------------------------------


class Asked:
    """Snapshots, their requests to workers, and the evaluated parameters."""

    def __init__(self, own: bool, **schedule) -> None:
        self.asked, self.evaluated = [], []
        self.snapshots = PeerSnapshots(
            NAMES, own, lambda name, read: self.asked.append((name, read)), self._evaluate
        )
        self.kernel = Kernel()
        self.snapshots.schedule(self.kernel, schedule.get("every_s"), schedule.get("every_updates"))

    def _evaluate(self, blocks, at, done) -> None:
        (block,) = blocks
        self.evaluated.append((at.version, block.item()))
        done()

    def answer(self, worker: int, version: int, value: float, request: int) -> None:
        self.snapshots.add(part(worker, version, value, request))

    def leave(self, worker: int, version: int, value: float) -> None:
        self.snapshots.add(part(worker, version, value, 0))

    def final(self) -> tuple[int, float, int]:
        self.snapshots.ask_for_last()
        (block,), at = self.snapshots.final
        return at.version, block.item(), at.applied


def part(worker: int, version: int, value: float, request: int):
    return Snapshot(worker, version, request, 0, 10 * version, torch.tensor([value]))


def test_what_is_in_common_is_asked_of_the_first_who_is_there():
    run = Asked(own=False, every_updates=5)
    zero, one, two = NAMES
    assert run.asked == [(zero, TakeSnapshot(1, 5)), (zero, TakeSnapshot(2, 10))]
    run.snapshots.lose(0)
    assert run.asked[2:] == [(one, TakeSnapshot(1, 5)), (one, TakeSnapshot(2, 10))]
    run.answer(1, 5, 7.0, 1)
    assert run.evaluated == [(5, 7.0)]
    assert run.asked[4:] == [(one, TakeSnapshot(3, 15))]
    run.leave(1, 9, 8.0)
    assert run.asked[5:] == [(two, TakeSnapshot(2, 10)), (two, TakeSnapshot(3, 15))]


def test_of_what_workers_have_of_their_own_the_mean_is_the_runs():
    run = Asked(own=True, every_s=1.0)
    run_for(run.kernel, 2)  # the second time, the first evaluation is still running
    assert run.asked == [(name, TakeSnapshot(1)) for name in NAMES]
    run.answer(0, 4, 1.0, 1)
    run.leave(2, 6, 3.0)
    assert run.evaluated == []
    run.answer(1, 5, 5.0, 1)
    assert run.evaluated == [(5, 3.0)]
    run.leave(0, 8, 2.0)
    run.leave(1, 10, 4.0)
    assert run.final() == (8, 3.0, 240)


def test_whoever_is_lost_has_no_part_in_the_mean():
    run = Asked(own=True, every_s=1.0)
    run_for(run.kernel, 1)
    run.answer(0, 6, 2.0, 1)
    run.answer(1, 6, 4.0, 1)
    run.snapshots.lose(2)
    ((_, value),) = run.evaluated
    assert value == 3.0
    run.leave(0, 9, 10.0)
    run.leave(1, 9, 20.0)
    _, value, applied = run.final()
    assert (value, applied) == (15.0, 180)
