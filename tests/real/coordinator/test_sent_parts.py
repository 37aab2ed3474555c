"""Workers without servers that do not see the folder of the run send the files of checkpoints."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import torch
from tests.support.checkpoints import METRICS, Keeper

from outpace.config.reading import experiment_from
from outpace.kernel import Kernel
from outpace.real.coordinator.saving.open import SavedRun, Saving
from outpace.real.coordinator.saving.sent_parts import CheckpointsOfSentParts, SentCheckpoint
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import CheckpointPart, SentFile, TakeCheckpoint
from outpace.real.net.messages import Plan
from outpace.real.node.saving.files import PartFiles, contents
from outpace.real.node.saving.of_worker import SavedWorker
from outpace.record.checkpoints.shards import read_parameters
from outpace.record.checkpoints.trees import packed_tree
from outpace.record.totals import Totals
from outpace.sync.checkpoint.workers import common_state, state_of_worker
from outpace.sync.messages import worker_name

PLAN = Plan([], [], layers=[3], bounds=[0, 3], dtype="float32", digest="")


class Run:
    """Two workers of `psgd`, in virtual time. Also their groups, and what sends messages."""

    averages = 0

    def __init__(self, folder) -> None:
        self.experiment = experiment_from(
            {
                "task": {"kind": "script", "path": "-"},
                "workers": 2,
                "sync": {"kind": "psgd"},
                "checkpoint": {"every_s": 5},
            },
            "the test",
        )
        self.folder, self.keeper, self.kernel = folder, Keeper(folder), Kernel()
        self.told, self.refused = [], []
        self.checkpoints = CheckpointsOfSentParts(
            SavedRun(
                self.experiment,
                self.kernel,
                self,
                Saving(self.keeper, lambda taken, *_: self.keeper.commit(taken, METRICS)),
                {worker_name(worker): Totals() for worker in range(2)},
            ),
            self,
        )
        self.checkpoints.prepare(PLAN, first=True)

    def send(self, name, message, block=None):
        self.told.append((name, message, block))

    def refuse(self, name, why):
        self.refused.append((name, why))

    def when_idle(self, action):
        action()

    def save(self, worker, number, iteration, value, at_start=False):
        """A worker sends its part."""
        files, saved = PartFiles(""), SavedWorker(worker, iteration, 0, iteration, [])
        if at_start and worker == 0:
            saved.common = files.add_shard(common_state({0: 0}, 0, 0, torch.ones(3), {}), "common")
        if not at_start:
            state = state_of_worker(worker, iteration, {}, parameters=torch.full((3,), value))
            saved.own = files.add_shard(state, f"worker-{worker}-model")
        kept = packed_tree({"kept": {"data": [(0, 4 * iteration)]}})
        files.add(f"worker-{worker}.safetensors", kept)
        self.hear(worker, number, saved, files.sent, files.block)

    def hear(self, worker, number, saved, files, block):
        encoded = msgspec.msgpack.encode(saved)
        message = CheckpointPart(number, 0, Totals(), encoded, files, head_of(block))
        name = worker_name(worker)
        assert self.checkpoints.expected(name, message) == ("uint8", block.numel())
        assert self.checkpoints.take(name, message, block)

    def wait(self, seconds):
        async def sleeper():
            await self.kernel.sleep(seconds)

        self.kernel.spawn(sleeper(), "the test")
        self.kernel.run()


class Point:
    """Where a run goes on, as far as it is looked at here."""

    def __init__(self, checkpoint, workers=2) -> None:
        self.checkpoint, self.path, self.first = checkpoint, checkpoint.path, [4] * workers


@pytest.fixture
def run(tmp_path):
    """A run that has its first checkpoint, and takes the second one."""
    found = Run(tmp_path)
    for worker in range(2):
        found.save(worker, 1, 0, 0.0, at_start=True)
    found.wait(0)
    assert found.keeper.last == 1
    found.checkpoints.start()
    found.told.clear()
    found.checkpoints.save_now()
    found.wait(0)
    yield found
    found.kernel.close()


def test_parts_that_are_sent_make_a_whole_checkpoint_with_the_mean_of_the_models(run):
    assert [message.folder for _, message, _ in run.told] == ["", ""]  # they see no folder
    run.save(0, 2, 4, 0.5)
    run.save(1, 2, 5, 1.5)
    run.wait(1)
    newest = run.keeper.files.newest()
    assert newest.index.number == 2
    newest.check()
    mean = read_parameters(newest.path, newest.index.shards[0])
    assert mean.tolist() == [1.0, 1.0, 1.0]
    assert newest.index.shards[0].watermarks == (3, 4)
    assert not run.refused


def test_a_worker_that_goes_on_gets_the_files_that_it_needs(run):
    run.save(0, 2, 4, 0.5)
    run.save(1, 2, 5, 1.5)
    run.wait(1)
    run.told.clear()
    newest = run.keeper.files.newest()
    sent = SentCheckpoint(run.experiment, run, Point(newest))
    states = sent.all()
    plan = sent.announced(msgspec.structs.replace(PLAN, resume="/of/the/coordinator"), states)
    assert (plan.resume, len(plan.kept)) == ("", 2)
    sent.send(states)
    assert run.told == []
    sending = sent.send_one_by_one()
    assert next(sending) == "worker-0"
    ((_, first, data),) = run.told  # nothing of worker 1 is read before worker 0 has it
    assert (plan.kept[0], data.numel()) == (data.numel(), sum(each.bytes for each in first.files))
    assert next(sending) == "worker-1"
    _, (name, second, _) = run.told
    assert name == "worker-1"
    assert next(sending, None) is None
    own = ["worker-0-model.safetensors", "worker-0.safetensors"]
    assert [file.name for file in first.files] == ["index.json", "common.safetensors", *own]
    assert [file.name for file in second.files][2] == "worker-1-model.safetensors"
    for file, content in zip(first.files, contents(first.files, data), strict=True):
        assert content.numpy().tobytes() == (newest.path / file.name).read_bytes()


def test_of_another_number_of_workers_each_gets_the_files_of_one_that_there_was(run):
    run.save(0, 2, 4, 0.5)
    run.save(1, 2, 5, 1.5)
    run.wait(1)
    run.told.clear()
    point = Point(run.keeper.files.newest(), workers=3)
    sent = SentCheckpoint(replace(run.experiment, workers=3), run, point)
    plan = sent.announced(PLAN, sent.all())
    # Worker 0 is behind with 16 samples: 32 are used, 10 for each of three workers.
    assert (plan.before, plan.places, len(plan.kept)) == (2, [(0, 10)], 3)
    assert list(sent.send_one_by_one()) == ["worker-0", "worker-1", "worker-2"]
    files = [[file.name for file in message.files[2:]] for _, message, _ in run.told]
    of_first = ["worker-0-model.safetensors", "worker-0.safetensors"]
    of_second = ["worker-1-model.safetensors", "worker-1.safetensors"]
    assert files == [of_first, of_second, of_first]


@pytest.mark.parametrize(
    ("names", "sizes", "why"),
    [
        (["../../config.yaml", "worker-0.safetensors"], [3, 3], "it sent the files"),
        (["worker-1.safetensors", "worker-0.safetensors"], [3, 3], "it sent the files"),
        (["worker-0.safetensors", "worker-0.safetensors"], [3, 3], "it sent the files"),
        (["worker-0-model.safetensors"], [6], "it sent the files"),
        # The common model is the mean of all, which the coordinator writes.
        (["common.safetensors", "worker-0.safetensors"], [3, 3], "it sent the files"),
        (["worker-0-model.safetensors", "worker-0.safetensors"], [3, 4], "it sends 6 bytes"),
    ],
)
def test_files_that_do_not_belong_to_the_part_of_a_worker_are_refused(run, names, sizes, why):
    before = set(run.folder.rglob("*"))
    files = [SentFile(name, size) for name, size in zip(names, sizes, strict=True)]
    block = torch.zeros(6, dtype=torch.uint8)
    run.hear(0, 2, SavedWorker(0, 4, 0, 4, []), files, block)
    ((name, text),) = run.refused
    assert name == "worker-0"
    assert why in text
    assert set(run.folder.rglob("*")) == before


def test_a_part_that_announces_files_and_has_none_is_refused(run):
    encoded = msgspec.msgpack.encode(SavedWorker(0, 4, 0, 4, []))
    files = [SentFile("worker-0.safetensors", 3)]
    assert run.checkpoints.take("worker-0", CheckpointPart(2, 0, Totals(), encoded, files))
    assert run.refused == [("worker-0", "it announced files for a checkpoint, and sent none")]


def test_a_record_of_a_file_that_was_not_sent_is_refused(run):
    files, saved = PartFiles(""), SavedWorker(0, 4, 0, 4, [])
    saved.own = PartFiles("").add_shard(
        state_of_worker(0, 4, {}, parameters=torch.ones(3)), "worker-0-model"
    )
    files.add("worker-0.safetensors", {"kept": torch.ones(1)})
    run.hear(0, 2, saved, files.sent, files.block)
    assert run.refused == [("worker-0", "it did not send the file worker-0-model.safetensors")]


def test_only_workers_may_send_files(run):
    block = torch.zeros(6, dtype=torch.uint8)
    message = CheckpointPart(2, 0, Totals(), b"", [], head_of(block))
    assert run.checkpoints.expected("server-0", message) is None
    assert run.checkpoints.expected("worker-0", TakeCheckpoint(2, None)) is None
