"""The coordinator orders scripts to save their state, together with the shards of the servers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.real.coordinator.test_checkpoints import Run
from tests.support.blocks_on_the_wire import announced

from outpace.blocks.packing import BlockHead
from outpace.real.net.checkpoint_messages import (
    MOST_REPORTED,
    CheckpointPart,
    ScriptState,
    TakeCheckpoint,
)
from outpace.real.node.saver import PartFiles
from outpace.record.checkpoints.tensors import from_bytes
from outpace.record.totals import Totals


class ScriptRun(Run):
    """Two servers, and two workers with a script. `told`: messages as (name, message)."""

    def __init__(self, folder, sync="bsp", path="train.py") -> None:
        super().__init__(folder, {"every_s": 5}, sync, task={"kind": "script", "path": path})

    def folder_of(self, number):
        return str(self.keeper.files._partial(number).absolute())

    def take(self, number, clock):
        """Return the order to a worker that sees the folder of the run."""
        return TakeCheckpoint(number, clock, self.folder_of(number))

    def begin(self):
        """Begin the run, with a checkpoint at clock 0."""
        self.checkpoints.save_start()
        self.orders()
        self.checkpoints.start()
        for server in (0, 1):
            self.saved(server, 1, 0)
        for worker in (0, 1):
            self.kept(worker, 1)
        self.wait(0.5)
        assert self.keeper.last == 1
        self.orders()

    def kept(self, worker, number, now=0, is_complete=True, done=0):
        """Save the state of a worker's script, and report that. Returns its files."""
        files = PartFiles(self.folder_of(number))
        if files._folder.exists():  # otherwise the checkpoint was given up
            files.add(f"worker-{worker}.safetensors", {"seen": torch.tensor([worker, number])})
        totals = Totals(iterations={worker: done}, bytes_sent=100 * done)
        part = CheckpointPart(number, now, totals, done, is_complete=is_complete, kept_at=now)
        part.parts = files.parts
        self.hear(f"worker-{worker}", part)
        return files


@pytest.fixture
def run(tmp_path):
    found = ScriptRun(tmp_path)
    yield found
    found.kernel.close()


def test_servers_and_scripts_are_asked_for_the_same_iteration(run):
    run.begin()
    run.wait(5)
    orders = run.orders_to("server")
    clock = orders[0].clock
    assert clock > 0
    assert run.orders_to("worker") == [run.take(2, clock)] * 2
    for server in (0, 1):
        run.saved(server, 2, clock, now=6 * 10**9)
    run.kept(0, 2, now=6 * 10**9 + 5, done=4)
    run.wait(5)
    assert run.keeper.last == 1  # a script is missing
    run.kept(1, 2, now=7 * 10**9, done=7)
    run.wait(1)
    checkpoint = run.keeper.files.newest()
    assert checkpoint.index.number == 2
    assert checkpoint.index.now == 6 * 10**9  # of the servers
    assert run.times == {0: 6 * 10**9 + 5, 1: 7 * 10**9}
    assert checkpoint.index.totals.bytes_sent == 1100
    for worker in (0, 1):
        data = np.fromfile(checkpoint.path / f"worker-{worker}.safetensors", dtype=np.uint8)
        assert from_bytes(torch.from_numpy(data))["seen"].tolist() == [worker, 2]


@pytest.mark.parametrize("sync", ["bsp", "asp", "cutoff"])
def test_at_the_start_scripts_and_servers_are_asked_before_any_is_told_to_begin(tmp_path, sync):
    """A script that is asked later would be saved in a later iteration than the servers.

    After a resume the gradients between them would be neither applied nor counted as lost.
    """
    run = ScriptRun(tmp_path, sync)
    run.checkpoints.save_start()
    assert run.orders_to("worker") == [run.take(1, 0)] * 2
    assert [order.number for order in run.orders_to("server")] == [1, 1]


def test_a_script_that_has_ended_is_not_awaited_and_the_checkpoint_says_so(run):
    run.begin()
    run.wait(5)
    clock = run.orders_to("server")[0].clock
    for server in (0, 1):
        run.saved(server, 2, clock)
    run.kept(0, 2)
    run.checkpoints.left("worker-1", ended=True)
    run.wait(0.5)
    assert run.taken[-1].number == 2
    assert run.taken[-1].ended == (1,)
    run.orders()
    run.checkpoints.save_now()
    assert [message.number for message in run.orders_to("worker")] == [3]


def test_a_checkpoint_without_the_last_gradients_of_a_script_is_taken_again(run):
    """The servers were saved with iteration 0 of worker 1, which leaves after iteration 2."""
    run.begin()
    run.wait(5)
    clock = run.orders_to("server")[0].clock
    for server in (0, 1):
        run.saved(server, 2, clock, watermarks=(2, 0), gone=())
    run.kept(0, 2)
    run.orders()
    run.checkpoints.left("worker-1", ended=True, pushed=3)
    assert run.keeper.abandoned == [(2, "")]
    clock = run.orders_to("server")[0].clock
    # Server 1 has been informed of the loss of the worker: its last pushes were also lost.
    run.saved(0, 3, clock, watermarks=(4, 2), gone=())
    run.saved(1, 3, clock, watermarks=(4, 1), gone=(1,))
    run.kept(0, 3)
    run.wait(0.5)
    assert run.taken[-1].number == 3
    assert run.taken[-1].ended == (1,)


def test_a_script_that_ends_after_it_was_saved_has_not_ended_at_the_checkpoint(run):
    run.checkpoints.save_start()
    for worker in (0, 1):
        run.kept(worker, 1)
    run.checkpoints.left("worker-1", ended=True)
    run.wait(0.5)
    assert not run.taken  # the parts of the servers are missing
    for server in (0, 1):
        run.saved(server, 1, 0)
    run.wait(0.5)
    assert run.taken[-1].ended == ()
    assert (run.keeper.files.newest().path / "worker-1.safetensors").exists()


def test_what_no_worker_was_asked_for_and_another_scripts_file_are_refused(run):
    run.begin()
    run.wait(5)
    parts = run.kept(0, 2).parts
    run.kept(0, 2)
    state = ScriptState(torch.zeros(1, dtype=torch.uint8))
    run.checkpoints.take("server-0", state)
    for wrong in ([], parts):
        run.hear("worker-1", CheckpointPart(2, 0, Totals(), parts=wrong))
    assert [name for name, _ in run.refused] == ["worker-0", "server-0", "worker-1", "worker-1"]
    assert run.checkpoints.expected("server-0", announced(state)) is None


def sent_between(run, worker, size, iteration):
    """Send a state of this many bytes from a worker between checkpoints; return its block."""
    data = torch.zeros(size, dtype=torch.uint8)
    message = ScriptState(data, iteration)
    assert run.checkpoints.expected(f"worker-{worker}", announced(message)) == ("uint8", size)
    assert run.checkpoints.take(f"worker-{worker}", message)
    return data


def test_a_new_process_gets_what_was_sent_last_and_how_much_the_servers_have(run):
    kept = run.states
    data = sent_between(run, 1, 7, 0)  # before there is a checkpoint
    assert kept.of(0) == {}
    assert kept.of(1)[1] is data
    run.begin()
    assert kept.of(1)[1] is data  # it is as new as the saved state
    data = sent_between(run, 1, 9, 2)
    assert kept.of(1)[1] is data
    assert from_bytes(kept.of(0)[0])["seen"].tolist() == [0, 1]
    run.orders()
    kept.send(kept.of(1), {1: 12})
    ((name, message),) = run.orders()
    assert (name, message.done, message.block.numel()) == ("worker-1", 12, 9)
    assert not message.logs  # the previous process has logged the repeated iterations
    assert not run.refused
    # A saved state that was too large to be sent is only in the file of a checkpoint.
    run.wait(5)
    run.kept(1, 2, done=3)
    assert from_bytes(kept.of(1)[1])["seen"].tolist() == [1, 1]
    assert kept.iteration(1) == 0


def test_a_state_between_checkpoints_has_a_limit(run):
    large = ScriptState(BlockHead("uint8", MOST_REPORTED + 1))
    assert run.checkpoints.expected("worker-0", large) is None
