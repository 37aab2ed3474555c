"""The coordinator lets workers without servers save their models, and completes checkpoints."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace
from tests.support.saved_processes import SavedProcesses

from outpace.real.net.checkpoint_messages import (
    CheckpointPart,
    NotSaved,
    TakeCheckpoint,
)
from outpace.real.net.messages import JoinRun, TakeSnapshot
from outpace.record.checkpoints import write_shard
from outpace.record.checkpoints.shards import read_parameters
from outpace.record.totals import Totals
from outpace.sync.checkpoint.workers import common_state, state_of_worker
from outpace.sync.messages import worker_name


class Run(SavedProcesses):
    """Three workers, which are saved at their start."""

    def __init__(self, folder, sync, checkpoint=None) -> None:
        data = {"workers": 3, "sync": {"kind": sync}, "checkpoint": checkpoint or {"every_s": 5}}
        super().__init__(folder, data, elements=3)
        self.waiting, self.is_idle = [], True
        self.checkpoints.save_start()
        assert [order.clock for _, order in self.orders()] == [0, 0, 0]
        self.checkpoints.start()
        for worker in range(3):
            self.save(worker, 1, 0, 0, common=worker == 0, own=False)
        self.wait(0)
        assert self.keeper.last == 1

    def when_idle(self, action):
        if self.is_idle:
            action()
        else:
            self.waiting.append(action)

    def orders(self):
        """Return the messages to the workers since the last call, with their numbers."""
        return [(int(name[-1]), message) for name, message in super().orders()]

    def save(self, worker, number, iteration, results, common=False, own=True, now=0, updates=0):
        """Save the state of a worker, and report that."""
        folder = self.keeper.files._partial(number)
        totals = Totals(iterations={worker: iteration}, applied=10)
        saved = CheckpointPart(number, now, totals, iteration, results, updates)
        if common:
            state = common_state({worker: iteration}, results, 7, torch.ones(3), {})
            saved.shard, part = write_shard(folder, state, name="common")
            saved.parts.append(part)
        if own:
            parameters = torch.full((3,), worker + 0.5)
            state = state_of_worker(worker, iteration, {}, parameters=parameters)
            saved.own, part = write_shard(folder, state, name=worker_name(worker))
            saved.parts.append(part)
        self.hear(worker_name(worker), saved)

    @property
    def newest(self):
        return self.keeper.files.newest().index


def test_all_save_at_the_same_results_and_the_first_one_saves_what_they_have_in_common(tmp_path):
    run = Run(tmp_path, "ssgd")
    run.averages = 8  # a worker has entered all-reduce 7, so another may have 8 results soon
    run.wait(5)
    orders = run.orders()
    assert [(who, each.number, each.clock) for who, each in orders] == [(n, 2, 9) for n in range(3)]
    assert [each.common for _, each in orders] == [True, False, False]
    for worker in (2, 0, 1):
        assert run.keeper.last == 1
        now = (5 + worker) * 10**9
        run.save(worker, 2, 9, 9, common=worker == 0, own=False, now=now, updates=9)
    run.wait(3)
    index = run.newest
    assert (index.number, index.now, index.updates) == (2, 5 * 10**9, 9)
    (common,) = index.shards
    assert (common.clock, common.version, common.watermarks) == (9, 9, (8, 8, 8))
    assert common.pushes == 7  # the state that worker 0 has saved
    assert index.totals.iterations == {0: 9, 1: 9, 2: 9}
    assert index.totals.applied == 30
    assert index.own == ()


def test_scripts_with_their_own_collectives_are_asked_ahead_of_what_they_have_reported(tmp_path):
    run = Run(tmp_path, "ssgd")
    run.joined["worker-0"] = JoinRun("", 1, follows=True)
    run.totals_of["worker-1"].iterations[1] = 7
    run.checkpoints.save_now()
    assert [order.clock for _, order in run.orders()] == [9] * 3


def test_a_checkpoint_is_given_up_when_a_worker_ends_and_begun_without_it(tmp_path):
    run = Run(tmp_path, "hpsgd", {"every_updates": 10})
    assert run.orders() == [(0, TakeSnapshot(0, 10))] * 2
    run.checkpoints.save_now()
    ((_, order), *_) = run.orders()
    run.save(0, 2, 99, order.clock, common=True)
    run.checkpoints.left("worker-0")  # it has done its 100 iterations
    told = run.orders()
    assert told[:3] == [(0, NotSaved(2)), (1, NotSaved(2)), (2, NotSaved(2))]
    assert [(who, each.number, each.common) for who, each in told[3:5]] == [
        (1, 3, True),
        (2, 3, False),
    ]
    assert told[5:] == [(1, TakeSnapshot(0, 10))]  # another one counts the versions now
    run.save(1, 3, 40, told[3][1].clock, common=True)
    run.save(2, 3, 41, told[3][1].clock)
    run.wait(1)
    assert run.newest.shards[0].watermarks == (99, 39, 40)
    assert run.checkpoints.waiting == []  # it has ended
    run.checkpoints.save_now()
    run.checkpoints.left("worker-1", lost=True)
    order = next(each for who, each in run.orders()[4:] if isinstance(each, TakeCheckpoint))
    run.save(2, order.number, 60, order.clock, common=True)
    run.wait(1)
    assert run.newest.number == 5
    assert run.newest.shards[0].watermarks == (99, 59, 59)  # the lost one begins with the other
    run.checkpoints.left("worker-2")
    run.orders()
    run.checkpoints.save_now()
    assert run.orders() == []


def test_models_that_differ_are_saved_between_averages_and_then_their_mean(tmp_path):
    run = Run(tmp_path, "gossip")
    run.is_idle, run.averages = False, 20
    run.wait(5)
    assert run.orders() == []
    (action,) = run.waiting
    action()
    orders = run.orders()
    assert [(who, each.clock, each.common) for who, each in orders] == [
        (who, None, False) for who in range(3)
    ]
    for worker in range(3):
        run.save(worker, 2, 6 + worker, 0, updates=6 + worker)
    run.wait(1)
    index = run.newest
    assert (index.number, index.updates) == (2, (6 + 7 + 8) // 3)
    (common,) = index.shards
    assert (common.clock, common.watermarks, common.pushes) == (6, (5, 6, 7), 21)
    assert common.version == 20
    newest = run.keeper.files.newest()
    newest.check()
    assert read_parameters(newest.path, common).tolist() == [1.5] * 3


def test_a_worker_with_its_own_model_is_saved_when_it_has_finished_until_it_is_lost(tmp_path):
    run = Run(tmp_path, "psgd")
    run.checkpoints.left("worker-1")
    run.wait(5)
    assert [who for who, _ in run.orders()] == [0, 1, 2]
    for worker in range(3):
        run.save(worker, 2, 100 if worker == 1 else 6, 0)
    run.wait(1)
    assert run.newest.shards[0].watermarks == (5, 99, 5)
    run.orders()
    assert run.checkpoints.waiting == ["worker-1"]
    run.checkpoints.left("worker-1", lost=True)  # its model is in no later checkpoint
    run.wait(20)
    assert run.orders() == []


def saved_by_worker_1(folder) -> CheckpointPart:
    part = CheckpointPart(2, 0, Totals(), 1)
    state = state_of_worker(1, 1, {}, parameters=torch.zeros(3))
    part.own, file = write_shard(folder, state, name="worker-1")
    part.parts = [file]
    return part


OUTSIDE = "../../config.yaml", "/etc/hostname", ".", ""


@pytest.mark.parametrize(
    ("own", "others", "why"),
    [
        ({"shard": 2}, [], "it saved worker 2"),
        (None, [], "it did not save its own model, which the mean of all models needs"),
        ({"version": -1}, [], "it saved numbers that cannot be"),
        *(({"file": file}, [], "it did not send the file") for file in OUTSIDE),
        *(({}, [file], "it saved files that are not of its") for file in OUTSIDE),
    ],
)
def test_what_a_worker_cannot_have_saved_is_refused(tmp_path, own, others, why):
    run = Run(tmp_path, "psgd")
    run.checkpoints.save_now()
    part = saved_by_worker_1(tmp_path)
    part.parts += [replace(part.parts[0], file=file) for file in others]
    part.own = None if own is None else replace(part.own, **own)
    run.hear("worker-1", part)
    ((name, told),) = run.refused
    assert (name, why in told) == ("worker-1", True), told
    run.hear("worker-1", saved_by_worker_1(tmp_path))
    assert len(run.refused) == 1


@pytest.mark.parametrize("asked", [True, False])
def test_only_the_worker_that_was_asked_for_it_saves_the_common_model(tmp_path, asked):
    run = Run(tmp_path, "hpsgd")
    run.wait(5)
    number, clock = next(
        (order.number, order.clock)
        for _, order in run.orders()
        if isinstance(order, TakeCheckpoint)
    )
    wrong = 0 if asked else 1
    run.save(wrong, number, clock, clock, common=not asked)
    assert [name for name, _ in run.refused] == [worker_name(wrong)]
    for worker in range(3):
        run.save(worker, number, clock, clock, common=worker == 0)
    run.wait(1)
    assert run.keeper.last == number
