"""The coordinator orders servers to save their shards, and completes checkpoints."""

from __future__ import annotations

import pytest
import torch
from tests.support.checkpoints import shard_state
from tests.support.saved_processes import SavedProcesses

from outpace.real.net.checkpoint_messages import (
    CheckpointPart,
    NotSaved,
    TakeCheckpoint,
    VersionReached,
)
from outpace.real.net.messages import Ready, TakeSnapshot
from outpace.record.checkpoints import write_shard
from outpace.record.totals import Totals
from outpace.sync.messages import server_name


class Run(SavedProcesses):
    """Two servers and two workers."""

    def __init__(self, folder, checkpoint, sync="bsp", **data) -> None:
        data |= {"servers": 2, "sync": {"kind": sync}, "checkpoint": checkpoint}
        super().__init__(folder, data)

    def clocks(self):
        """Return number and clock of the orders to save; all servers get the same."""
        (first, second) = [message for _, message in self.orders()]
        assert isinstance(first, TakeCheckpoint)
        assert first == second
        return first.number, first.clock

    def saved(self, server, number, clock, now=0, **state):
        """Save the state of a server, and report that."""
        folder = self.keeper.files._partial(number)
        parameters = torch.full((3,), float(server))
        state = shard_state(shard=server, clock=clock, parameters=parameters, **state)
        record, part = write_shard(folder, state)
        totals = Totals(applied=10 * clock if server == 0 else 0)
        self.hear(
            server_name(server), CheckpointPart(number, now, totals, shard=record, parts=[part])
        )

    def begin(self, clock=0):
        """Begin the run, with a checkpoint at clock 0; None: of each server at once."""
        self.checkpoints.save_start()
        assert self.clocks() == (1, clock)
        self.checkpoints.start()
        for server in (0, 1):
            self.saved(server, 1, 0)
        self.wait(0)
        assert self.keeper.last == 1


def test_checkpoints_are_due_after_seconds_and_ahead_of_all_workers(tmp_path):
    run = Run(tmp_path, {"every_s": 5})
    run.begin()
    run.totals_of["worker-1"].iterations[1] = 7
    run.wait(4.9)
    assert run.orders() == []
    run.wait(0.1)
    number, clock = run.clocks()
    assert (number, clock > 7) == (2, True)
    run.saved(0, 2, clock, now=5 * 10**9)
    run.wait(4)
    assert run.keeper.last == 1  # a server is missing
    run.saved(1, 2, clock, now=6 * 10**9)
    run.wait(0.5)
    index = run.keeper.files.newest().index
    assert (index.number, index.now) == (2, 6 * 10**9)
    # The sums of the servers at the checkpoint count, and the gradients that workers had pushed by
    # then (the watermarks are 4 and 6), independently of their reports.
    assert index.totals.applied == 10 * clock
    assert index.totals.iterations == {0: 5, 1: 7}


def test_server_0_tells_when_enough_updates_are_done(tmp_path):
    run = Run(tmp_path, {"every_updates": 20})
    run.begin()
    # The first checkpoint says that server 0 has version 11.
    assert run.orders()[-1] == ("server-0", TakeSnapshot(0, 20))
    run.hear("server-0", VersionReached(23, 40))
    number, clock = run.clocks()
    assert (number, clock > 40) == (2, True)
    for server in (0, 1):
        run.saved(server, 2, clock, version=44)
    run.wait(1)
    assert run.orders() == [("server-0", TakeSnapshot(0, 60))]


def test_a_checkpoint_that_cannot_be_written_is_abandoned_and_the_next_one_is_taken(tmp_path):
    run = Run(tmp_path, {"every_s": 5})
    run.begin()
    run.wait(5)
    _, clock = run.clocks()
    run.saved(0, 2, clock)
    run.hear("server-1", NotSaved(2, why="no space"))
    assert run.orders() == [(server, NotSaved(2)) for server in run.servers]
    run.keeper.is_full = True
    run.wait(5)
    assert run.orders() == []
    assert run.keeper.abandoned == [(2, "no space"), (3, "no space")]
    run.keeper.is_full = False
    run.wait(5)
    number, clock = run.clocks()
    for server in (0, 1):
        run.saved(server, number, clock)
    run.wait(1)
    assert run.keeper.files.numbers() == [1, 4]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "000001",
        "000004",
    ]


def test_a_server_whose_disk_does_not_answer_holds_up_one_checkpoint(tmp_path):
    run = Run(tmp_path, {"every_s": 1750})
    run.begin()
    run.wait(1750)
    _, clock = run.clocks()
    run.saved(0, 2, clock)
    run.wait(1799)
    assert run.orders() == []
    run.wait(1)
    assert run.keeper.abandoned == [(2, "server-1 did not save within 1800 s")]
    assert run.orders() == [(server, NotSaved(2)) for server in run.servers]
    run.wait(1700)
    assert run.clocks()[0] == 3


@pytest.mark.parametrize("servers", [1, 2])
def test_at_the_end_an_open_checkpoint_is_completed_if_all_servers_are_saved(servers, tmp_path):
    run = Run(tmp_path, {"every_s": 5})
    run.begin()
    run.wait(5)
    _, clock = run.clocks()
    for server in range(servers):
        run.saved(server, 2, clock)
    run.checkpoints.end()
    assert run.keeper.files.numbers() == ([1, 2] if servers == 2 else [1])
    assert not list(tmp_path.glob("checkpoints/*.part"))
    run.orders()
    run.wait(20)
    assert run.orders() == []


def test_a_message_that_cannot_be_right_is_refused(tmp_path):
    run = Run(tmp_path, {"every_s": 5})
    run.begin()
    run.wait(5)
    _, clock = run.clocks()
    assert run.checkpoints.take("worker-0", NotSaved(2, 1))
    run.hear("server-0", CheckpointPart(2, 0, Totals()))
    run.saved(0, 2, clock)
    run.hear("server-1", NotSaved(9, 1))
    assert [name for name, _ in run.refused] == ["worker-0", "server-0", "server-1"]
    assert not run.checkpoints.take("server-0", Ready())


def test_a_server_that_says_it_saved_what_cannot_be_is_refused(tmp_path):
    run = Run(tmp_path, {"every_s": 5})
    run.begin()
    run.wait(5)
    number, clock = run.clocks()
    wrong = {"watermarks": (1,)}, {"watermarks": (1, 2**60)}, {"version": -1}, {"pushes": 2**60}
    for count, changes in enumerate(wrong, 1):
        run.saved(1, number, clock, **changes)
        assert len(run.refused) == count
    run.saved(0, number, clock)
    run.saved(1, number, clock)
    run.wait(1)
    assert run.keeper.last == number
