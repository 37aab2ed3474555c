"""The coordinator has scripts save what they keep, together with the shards of the servers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.real.coordinator.test_checkpoints import PLAN, Run
from tests.support.checkpoints import METRICS

from outpace.blocks.packing import BlockHead
from outpace.config.reading import experiment_from
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.real.coordinator.saving.open import SavedRun, Saving
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import (
    MOST_KEPT,
    MOST_REPORTED,
    NotSaved,
    ScriptState,
    TakeCheckpoint,
)
from outpace.record.checkpoints.tensors import from_bytes, to_bytes
from outpace.record.totals import Totals


class ScriptRun(Run):
    """Two servers, and two workers with a script. `told` are (name, message)."""

    def __init__(self, folder, sync="bsp") -> None:
        super().__init__(folder, {"every_s": 5}, sync)
        task = {"kind": "script", "path": "train.py"}
        data = {"task": task, "workers": 2, "servers": 2, "sync": {"kind": sync}}
        self.experiment = experiment_from({**data, "checkpoint": {"every_s": 5}}, "the test")
        self.times, self.taken, self.writes, self.sent = {}, [], [], []
        self.writes_at_once = True
        self.checkpoints = CheckpointsOfServers(
            SavedRun(
                self.experiment,
                self.kernel,
                self,
                Saving(self.keeper, self.complete),
                self.totals,
                beside=self.beside,
            ),
            sent=lambda worker, *_: self.sent.append(worker),
        )

    def complete(self, taken, folder, times):
        self.keeper.commit(taken, METRICS)
        self.taken.append(taken)
        self.times = times

    def beside(self, job, done):
        self.writes.append(lambda: done(job()))
        if self.writes_at_once:
            self.writes.pop()()

    def send(self, name, message, block=None):
        self.told.append((name, message))

    def orders_to(self, kind):
        """Return the messages to servers, or to workers, since the last call."""
        found = [message for name, message in self.told if name.startswith(kind)]
        self.told = [each for each in self.told if not each[0].startswith(kind)]
        return found

    def begin(self):
        """Begin the run, with a checkpoint at clock 0."""
        self.checkpoints.prepare(PLAN, first=True)
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
        """A worker sends what its script keeps."""
        data = to_bytes({"seen": torch.tensor([worker, number])})
        totals = Totals(iterations={worker: done}, bytes_sent=100 * done)
        message = ScriptState(number, now, totals, is_complete, head_of(data))
        name = f"worker-{worker}"
        assert self.checkpoints.expected(name, message) == ("uint8", data.numel())
        assert self.checkpoints.take(name, message, data)

    def tell(self, worker, message):
        assert self.checkpoints.take(f"worker-{worker}", message)


@pytest.fixture
def run(tmp_path):
    return ScriptRun(tmp_path)


def test_servers_and_scripts_are_asked_for_the_same_iteration(run):
    run.begin()
    run.wait(5)
    orders = run.orders_to("server")
    clock = orders[0].clock
    assert clock > 0
    assert run.orders_to("worker") == [TakeCheckpoint(2, clock)] * 2
    for server in (0, 1):
        run.saved(server, 2, clock, now=6 * 10**9)
    run.kept(0, 2, now=6 * 10**9 + 5, done=4)
    run.wait(5)
    assert run.keeper.last == 1  # a script is missing
    run.kept(1, 2, now=7 * 10**9, done=7)
    run.wait(0.5)
    checkpoint = run.keeper.files.newest()
    assert checkpoint.index.number == 2
    assert checkpoint.index.now == 6 * 10**9  # of the servers
    assert run.times == {0: 6 * 10**9 + 5, 1: 7 * 10**9}
    assert checkpoint.index.totals.bytes_sent == 1100
    for worker in (0, 1):
        data = np.fromfile(checkpoint.path / f"worker-{worker}.safetensors", dtype=np.uint8)
        assert from_bytes(torch.from_numpy(data))["seen"].tolist() == [worker, 2]


def test_with_relaxed_strategies_servers_are_asked_once_all_scripts_have_sent_their_states(
    tmp_path,
):
    run = ScriptRun(tmp_path, "asp")
    run.begin()
    run.wait(5)
    assert run.orders() == [(f"worker-{n}", TakeCheckpoint(2, None)) for n in (0, 1)]
    run.writes_at_once = False
    run.kept(0, 2, done=3)
    assert run.orders() == []
    run.kept(1, 2, done=4)
    orders = run.orders()
    assert [name for name, _ in orders] == ["server-0", "server-1"]
    assert all((order.number, order.clock) == (2, None) for _, order in orders)
    run.totals["worker-0"].bytes_sent = 70  # until the servers were saved
    for write in run.writes:
        write()
    for server in (0, 1):
        run.saved(server, 2, 6, now=5 * 10**9)
    run.wait(0.5)
    assert run.taken[-1].totals.bytes_sent == 70
    assert run.times.keys() == {0, 1}


def test_with_relaxed_strategies_the_servers_do_not_wait_for_a_worker_that_leaves(tmp_path):
    run = ScriptRun(tmp_path, "asp")
    run.begin()
    run.wait(5)
    run.kept(0, 2)
    run.orders()
    run.checkpoints.left("worker-1", ended=True)
    assert [name for name, _ in run.orders()] == ["server-0", "server-1"]


def test_servers_that_wait_for_scripts_are_not_late(tmp_path):
    run = ScriptRun(tmp_path, "asp")
    run.begin()
    run.wait(5)
    run.wait(600)
    assert run.keeper.abandoned == []
    for worker in (0, 1):
        run.kept(worker, 2)
    run.saved(0, 2, 6)
    run.wait(299)
    assert run.keeper.abandoned == []
    run.wait(302)
    assert run.keeper.abandoned == [(2, "server-1 did not save within 300 s")]


def test_where_workers_pass_over_iterations_scripts_are_asked_once_all_servers_are_saved(
    tmp_path,
):
    run = ScriptRun(tmp_path, "asp")
    run.checkpoints.relax()  # a condition may be any other now
    run.begin()
    run.wait(5)
    assert [name for name, _ in run.orders()] == ["server-0", "server-1"]
    run.saved(0, 2, 6)
    assert run.orders_to("worker") == []
    run.saved(1, 2, 6)
    assert run.orders_to("worker") == [TakeCheckpoint(2, None)] * 2


@pytest.mark.parametrize("sync", ["bsp", "asp", "cutoff"])
def test_at_the_start_scripts_and_servers_are_asked_before_any_is_told_to_begin(tmp_path, sync):
    """A script that is asked later is saved in a later iteration, ahead of the servers' parts.

    After a resume the gradients in between would be neither applied nor counted as lost.
    """
    run = ScriptRun(tmp_path, sync)
    run.checkpoints.prepare(PLAN, first=True)
    clock = None if sync == "asp" else 0
    assert run.orders_to("worker") == [TakeCheckpoint(1, clock)] * 2
    assert [order.number for order in run.orders_to("server")] == [1, 1]


def test_a_script_that_is_past_the_iteration_has_all_asked_for_a_later_one(run):
    run.begin()
    run.wait(5)
    clock = run.orders_to("server")[0].clock
    for server in (0, 1):
        run.saved(server, 2, clock)
    run.kept(0, 2)
    run.orders()
    run.tell(1, NotSaved(2, clock + 3))
    assert run.keeper.abandoned == [(2, "")]
    to_servers, to_workers = run.orders_to("server"), run.orders_to("worker")
    assert to_servers[:2] == [NotSaved(2)] * 2
    later = to_servers[2].clock
    assert later > clock + 3
    # Worker 0 has nothing to give up: it has sent what its script keeps.
    assert to_workers == [NotSaved(2), *[TakeCheckpoint(3, later)] * 2]
    run.kept(0, 2)  # it had not heard of it
    assert not run.refused


def test_a_script_that_cannot_be_saved_gives_the_checkpoint_up(run):
    run.begin()
    run.wait(5)
    run.orders()
    run.tell(1, NotSaved(2, why="a lock cannot be kept"))
    assert run.keeper.abandoned == [(2, "a lock cannot be kept")]
    assert run.orders() == [
        (name, NotSaved(2)) for name in ("worker-0", "worker-1", "server-0", "server-1")
    ]


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
    # Server 1 has been told that the worker is gone: its last pushes were lost with it.
    run.saved(0, 3, clock, watermarks=(4, 2), gone=())
    run.saved(1, 3, clock, watermarks=(4, 1), gone=(1,))
    run.kept(0, 3)
    run.wait(0.5)
    assert run.taken[-1].number == 3
    assert run.taken[-1].ended == (1,)


def test_a_script_that_is_stopped_at_the_limit_has_not_ended(run):
    run.begin()
    run.checkpoints.left("worker-1", ended=False, pushed=3)
    run.wait(5)
    clock = run.orders_to("server")[0].clock
    for server in (0, 1):
        run.saved(server, 2, clock, watermarks=(4, 2), gone=(1,))
    run.kept(0, 2)
    run.wait(0.5)
    assert run.taken[-1].number == 2
    assert run.taken[-1].ended == ()


def test_a_script_that_ends_after_it_was_saved_has_not_ended_at_the_checkpoint(run):
    run.writes_at_once = False
    run.checkpoints.prepare(PLAN, first=True)
    for server in (0, 1):
        run.saved(server, 1, 0)
    for worker in (0, 1):
        run.kept(worker, 1)
    run.checkpoints.left("worker-1", ended=True)
    run.wait(0.5)
    assert not run.taken  # the files are not written yet
    for write in run.writes:
        write()
    run.wait(0.5)
    assert run.taken[-1].ended == ()
    assert (run.keeper.files.newest().path / "worker-1.safetensors").exists()


def test_a_script_that_is_told_to_stop_has_not_ended(run):
    run.begin()
    run.wait(5)
    clock = run.orders_to("server")[0].clock
    for server in (0, 1):
        run.saved(server, 2, clock)
    run.kept(0, 2)
    run.checkpoints.stop()
    run.checkpoints.left("worker-1", ended=True)
    run.checkpoints.end()
    assert run.keeper.files.numbers() == [1]


def test_the_successor_of_a_lost_worker_is_asked_again(run):
    run.begin()
    run.wait(5)
    order = run.orders_to("worker")[0]
    run.checkpoints.began(1)
    assert run.orders_to("worker") == [order]
    run.kept(1, 2)
    run.checkpoints.began(1)
    assert run.orders_to("worker") == []


def test_a_script_may_compute_for_long_and_its_file_may_not_take_as_long(run):
    run.begin()
    run.checkpoints.save_now()
    clock = run.orders_to("server")[0].clock
    for server in (0, 1):
        run.saved(server, 2, clock)
    run.wait(600)
    assert run.keeper.abandoned == []
    run.totals["worker-1"].iterations[1] = 2
    run.wait(300)
    assert run.keeper.abandoned == [(2, "worker-1 did not save within 300 s")]


def test_scripts_that_keep_nothing_are_known(run):
    run.begin()
    run.wait(5)
    run.kept(1, 2, is_complete=False)
    assert run.checkpoints.unrepeatable == {1}


def test_what_no_worker_was_asked_for_is_refused(run):
    run.begin()
    run.wait(5)
    run.sent.clear()
    run.kept(0, 2)
    run.kept(0, 2)
    assert run.sent == [0]  # what is refused changes nothing
    data = to_bytes({})
    state = ScriptState(2, 0, Totals(), True, head_of(data))
    run.checkpoints.take("server-0", state, data)
    assert [name for name, _ in run.refused] == ["worker-0", "server-0"]
    assert run.checkpoints.expected("server-0", state) is None
    large = ScriptState(2, 0, Totals(), True, BlockHead("uint8", MOST_KEPT + 1))
    assert run.checkpoints.expected("worker-0", large) is None


def test_a_new_process_gets_what_was_kept_at_the_last_checkpoint(run):
    kept = KeptScripts(run.experiment, run, None, lambda: run.keeper.folder)
    assert kept.all() == kept.of(1) == {}
    run.begin()
    states = kept.of(1)
    assert list(states) == [1]
    assert from_bytes(states[1])["seen"].tolist() == [1, 1]
    plan = kept.announced(PLAN, states)
    assert plan.kept == [0, states[1].numel()]
    run.orders()
    kept.send(states)
    ((name, message),) = run.orders()
    assert name == "worker-1"
    assert message.block == head_of(states[1])


def sent_between(run, worker, size):
    """A worker sends a state of so many bytes between checkpoints; return its block."""
    data = torch.zeros(size, dtype=torch.uint8)
    message = ScriptState(0, 0, Totals(), True, head_of(data))
    assert run.checkpoints.expected(f"worker-{worker}", message) == ("uint8", size)
    assert run.checkpoints.take(f"worker-{worker}", message, data)
    return data


def test_a_new_process_gets_what_was_sent_last_and_how_much_the_servers_have(tmp_path):
    run = ScriptRun(tmp_path)
    kept = KeptScripts(run.experiment, run, None, lambda: run.keeper.folder)
    run.checkpoints = CheckpointsOfServers(
        SavedRun(run.experiment, run.kernel, run, Saving(run.keeper, run.complete), run.totals),
        sent=kept.sent,
    )
    data = sent_between(run, 1, 7)  # before there is a checkpoint
    assert kept.of(0) == {}
    assert kept.of(1)[1] is data
    run.begin()
    assert from_bytes(kept.of(1)[1])["seen"].tolist() == [1, 1]  # sent for the checkpoint
    data = sent_between(run, 1, 9)
    assert kept.of(1)[1] is data
    assert from_bytes(kept.of(0)[0])["seen"].tolist() == [0, 1]
    run.orders()
    kept.send(kept.of(1), {1: 12})
    ((name, message),) = run.orders()
    assert (name, message.done, message.block.elements) == ("worker-1", 12, 9)
    assert not message.logs  # the process before it has logged what it repeats
    assert not run.refused
    # A larger one is in the file of a checkpoint only.
    kept.sent(1, torch.zeros(MOST_REPORTED + 1, dtype=torch.uint8), 0)
    assert from_bytes(kept.of(1)[1])["seen"].tolist() == [1, 1]


def test_a_state_between_checkpoints_has_a_limit(run):
    large = ScriptState(0, 0, Totals(), True, BlockHead("uint8", MOST_REPORTED + 1))
    assert run.checkpoints.expected("worker-0", large) is None
