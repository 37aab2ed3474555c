"""Checkpoints of workers without servers that do not see the folder of the run are fetched."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.support.blocks_on_the_wire import announced, apart
from tests.support.saved_processes import SavedProcesses

from outpace.real.background import do_now
from outpace.real.coordinator.saving.given_files import GivenFiles
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import (
    CheckpointPart,
    FilePiece,
    ScriptState,
)
from outpace.real.node.saving.saver import PartFiles
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.shards import read_parameters
from outpace.record.checkpoints.trees import packed_tree
from outpace.record.totals import Totals
from outpace.sync.checkpoint.workers import common_state, state_of_worker
from outpace.sync.messages import worker_name


class Run(SavedProcesses):
    """Two workers of `psgd`."""

    def __init__(self, folder) -> None:
        data = {"task": {"kind": "script", "path": "-"}, "sync": {"kind": "psgd"}}
        super().__init__(folder, data, elements=3)
        self.checkpoints.save_start()

    def save(self, worker, number, iteration, value, at_start=False):
        """A worker sends its part."""
        files, saved = PartFiles(""), CheckpointPart(number, 0, Totals(), iteration, 0, iteration)
        if at_start and worker == 0:
            saved.shard = files.add_shard(common_state({0: 0}, 0, 0, torch.ones(3), {}), "common")
        if not at_start:
            state = state_of_worker(worker, iteration, {}, parameters=torch.full((3,), value))
            saved.own = files.add_shard(state, f"worker-{worker}-model")
        kept = packed_tree({"kept": {"data": [(0, 4 * iteration)]}})
        files.add(f"worker-{worker}.safetensors", kept)
        self.announce(worker, saved, files.parts)
        self.held[worker_name(worker)] = files.contents
        self.deliver()

    def announce(self, worker, part, files):
        part.parts = list(files)
        assert self.checkpoints.take(worker_name(worker), part)


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
    assert [message.folder for _, message in run.told] == ["", ""]  # they see no folder
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


def test_a_worker_that_goes_on_is_offered_the_files_that_it_needs(run):
    run.save(0, 2, 4, 0.5)
    run.save(1, 2, 5, 1.5)
    run.wait(1)
    run.told.clear()
    newest = run.keeper.files.newest()
    given = GivenFiles(run.experiment, run, do_now, print)
    for worker in range(2):
        given.offer(f"worker-{worker}", newest.path)
        ((name, offer),) = run.orders()
        assert (name, offer.number) == (f"worker-{worker}", 2)
        assert [file.file for file in offer.files] == [
            "index.json",
            "common.safetensors",
            f"worker-{worker}-model.safetensors",
            f"worker-{worker}.safetensors",
        ]
        for place, file in enumerate(offer.files):
            assert given.take(name, FilePiece(2, place, 0))
            ((_, sent),) = run.orders()
            piece, data = apart(sent)
            assert piece == FilePiece(2, place, 0, head_of(data))
            assert data.numpy().tobytes() == (newest.path / file.file).read_bytes()
    assert not run.refused


def test_of_another_number_of_workers_each_gets_the_files_of_one_that_there_was(run):
    run.save(0, 2, 4, 0.5)
    run.save(1, 2, 5, 1.5)
    run.wait(1)
    run.told.clear()
    newest = run.keeper.files.newest()
    given = GivenFiles(replace(run.experiment, workers=3), run, do_now, print)
    for worker in range(3):
        given.offer(f"worker-{worker}", newest.path)
    files = [[file.file for file in offer.files[2:]] for _, offer in run.told]
    of_first = ["worker-0-model.safetensors", "worker-0.safetensors"]
    of_second = ["worker-1-model.safetensors", "worker-1.safetensors"]
    assert files == [of_first, of_second, of_first]


@pytest.mark.parametrize(
    ("names", "sizes", "why"),
    [
        (["../../config.yaml", "worker-0.safetensors"], [3, 3], "it announces the files"),
        (["worker-1.safetensors", "worker-0.safetensors"], [3, 3], "it announces the files"),
        (["worker-0.safetensors", "worker-0.safetensors"], [3, 3], "it announces the files"),
        (["worker-0-model.safetensors", "worker-0.safetensors"], [0, 3], "an empty file"),
        (["worker-0.safetensors"], [1 << 34], "files of more than"),
        # The common model is the mean of all, which the coordinator writes.
        (["common.safetensors", "worker-0.safetensors"], [3, 3], "it announces the files"),
    ],
)
def test_files_that_do_not_belong_to_the_part_of_a_worker_are_refused(run, names, sizes, why):
    before = set(run.folder.rglob("*"))
    files = [Part(name, size, 0) for name, size in zip(names, sizes, strict=True)]
    run.announce(0, CheckpointPart(2, 0, Totals(), 4, 0, 4), files)
    ((name, text),) = run.refused
    assert name == "worker-0"
    assert why in text
    assert not run.requests
    assert set(run.folder.rglob("*")) == before


def test_a_record_of_a_file_that_was_not_sent_is_refused(run):
    files, saved = PartFiles(""), CheckpointPart(2, 0, Totals(), 4, 0, 4)
    saved.own = PartFiles("").add_shard(
        state_of_worker(0, 4, {}, parameters=torch.ones(3)), "worker-0-model"
    )
    files.add("worker-0.safetensors", {"kept": torch.ones(1)})
    run.announce(0, saved, files.parts)
    run.held["worker-0"] = files.contents
    run.deliver()
    assert run.refused == [("worker-0", "it did not send the file worker-0-model.safetensors")]


def test_workers_without_servers_send_nothing_between_checkpoints(run):
    state = ScriptState(torch.zeros(1, dtype=torch.uint8))
    assert run.checkpoints.expected("worker-0", announced(state)) is None
    run.hear("worker-0", state)
    assert [name for name, _ in run.refused] == ["worker-0"]
