"""Checkpoints of servers that do not see the folder of the run are fetched from them."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from tests.support.blocks_on_the_wire import announced
from tests.support.checkpoints import same, shard_state
from tests.support.saved_processes import SavedProcesses

from outpace.engine.resuming import state_of
from outpace.real.background import do_now
from outpace.real.coordinator.saving.checkpoints import LONGEST_S
from outpace.real.coordinator.saving.given_files import GivenFiles
from outpace.real.copying import OwnFiles
from outpace.real.net.block_frames import PIECE_BYTES
from outpace.real.net.checkpoint_messages import (
    CheckpointFiles,
    CheckpointPart,
    FilePiece,
    TakeCheckpoint,
)
from outpace.real.node.saving.saver import PartFiles
from outpace.record.checkpoints import Checkpoint, Part
from outpace.record.checkpoints.shards import read_shard
from outpace.record.totals import Totals

SIZE = 2 * PIECE_BYTES // 4 + 1  # parameters of a server: its file has three pieces


class Run(SavedProcesses):
    """Servers that send their files, and two workers."""

    def __init__(self, folder, servers=2) -> None:
        data = {
            "task": {"kind": "timing", "parameters": 2 * SIZE},
            "servers": servers,
            "sync": {"kind": "asp"},
            "checkpoint": {"every_s": 10_000},
        }
        super().__init__(folder, data, 2 * SIZE, copies=True)
        self.jobs = deque()

    def save(self, server, number, clock, value):
        """A server takes its state, and announces it; returns the state."""
        parameters = torch.full((SIZE,), value)
        state = shard_state(shard=server, clock=clock, parameters=parameters)
        files = PartFiles("")
        record = files.add_shard(state, f"server-{server}")
        self.held[f"server-{server}"] = files.contents
        self.announce(server, number, record, files.parts)
        return state

    def announce(self, server, number, record, files):
        message = CheckpointPart(number, 0, Totals(), shard=record, parts=files)
        assert self.checkpoints.take(f"server-{server}", message)

    def finish(self):
        while self.requests or self.jobs:
            self.deliver()
            self.work()

    def names(self):
        """Return the names of what is in the folder of checkpoints."""
        return sorted(path.name for path in self.folder.glob("checkpoints/*"))


@pytest.fixture
def run(tmp_path):
    """A run that takes its first checkpoint when its training has begun."""
    found = Run(tmp_path)
    found.checkpoints.start()
    found.checkpoints.save_now()
    assert [message for _, message in found.told] == [TakeCheckpoint(1, None, "")] * 2
    found.told.clear()
    yield found
    found.kernel.close()
    found.checkpoints.close()
    found.work()


def test_fetched_parts_are_a_whole_checkpoint_with_the_states_bit_by_bit(run):
    states = [run.save(server, 1, 5, server + 0.5) for server in range(2)]
    run.finish()
    run.wait(1)
    newest = run.keeper.files.newest()
    newest.check()
    assert newest.index.number == 1
    for state, record in zip(states, newest.index.shards, strict=True):
        assert same(read_shard(newest.path, record), state)
    assert (run.names(), run.refused) == (["000001"], [])


def test_a_file_that_cannot_be_written_gives_the_checkpoint_up_and_says_why(run):
    for server in range(2):
        run.save(server, 1, 5, 0.5)
    part = run.folder / "checkpoints" / "000001.part"
    (part / "server-0.safetensors").mkdir()  # in its place
    run.finish()
    assert run.names() == []
    ((number, why),) = run.keeper.abandoned
    assert (number, "File exists" in why) == (1, True)
    assert not run.refused


def test_a_part_that_arrives_slowly_is_not_given_up(run):
    run.save(0, 1, 5, 0.5)
    run.finish()
    run.save(1, 1, 5, 0.5)
    for _ in range(3):
        run.deliver(1)
        run.work()
        run.wait(LONGEST_S - 10)
    run.wait(1)
    assert run.names() == ["000001"]


def test_a_part_that_no_longer_arrives_is_given_up(run):
    run.save(0, 1, 5, 0.5)
    run.finish()
    run.save(1, 1, 5, 0.5)
    run.wait(2 * LONGEST_S + 1)
    assert run.names() == []
    ((_, why),) = run.keeper.abandoned
    assert why == "server-1 did not save within 300 s"


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (Part("server-1.safetensors", 3, 0), "it announces the files"),
        (Part("../config.yaml", 3, 0), "it announces the files"),
        (Part("server-0.safetensors", 0, 0), "an empty file"),
        (Part("server-0.safetensors", -1, 0), "an empty file"),
        (Part("server-0.safetensors", 1 << 40, 0), "files of more than"),
    ],
)
def test_files_that_a_server_cannot_have_are_refused(run, file, why):
    saved = PartFiles("").add_shard(shard_state(shard=0), "server-0")
    run.announce(0, 1, saved, [file])
    ((name, text),) = run.refused
    assert (name, why in text) == ("server-0", True)
    assert not run.requests
    assert list(run.folder.rglob("*.safetensors")) == []


def test_only_the_piece_that_is_due_is_taken(run):
    run.save(0, 1, 5, 0.5)
    block = torch.zeros(PIECE_BYTES, dtype=torch.uint8)
    due = FilePiece(1, 0, 0, block)
    assert run.checkpoints.expected("server-0", announced(due)) == ("uint8", PIECE_BYTES)
    later = FilePiece(1, 0, PIECE_BYTES, block)
    for name, piece in (("server-0", later), ("server-1", due), ("worker-0", due)):
        assert run.checkpoints.expected(name, announced(piece)) is None
        assert run.checkpoints.take(name, piece)
        assert run.refused.pop()[0] == name


def test_a_server_that_goes_on_fetches_the_files_that_it_needs(run, tmp_path_factory):
    states = [run.save(server, 1, 5, server + 0.5) for server in range(2)]
    run.finish()
    run.wait(1)
    newest = run.keeper.files.newest()
    given, copied = GivenFiles(run.experiment, run, do_now, print), tmp_path_factory.mktemp("node")
    messages = deque()
    run.send = lambda name, message: messages.append(message)
    fetched = OwnFiles("server-1", run.kernel, lambda each: given.take("server-1", each))
    given.offer("server-1", newest.path)

    async def fetch():
        await fetched.into(copied)

    run.kernel.spawn(fetch(), "the server")
    run.kernel.run(run.kernel.now)
    while messages:
        message = messages.popleft()
        if isinstance(message, FilePiece):
            assert fetched.expected(announced(message)) == ("uint8", message.block.numel())
        assert fetched.take(message)
        run.kernel.run(run.kernel.now)
    names = sorted(path.name for path in copied.iterdir())
    assert names == ["index.json", "server-1.safetensors"]
    assert same(state_of(Checkpoint(copied), run.experiment, 1), states[1])
    assert fetched.expected(announced(FilePiece(1, 0, 0, torch.zeros(1)))) is None
    assert not run.refused


def test_with_another_number_of_servers_each_fetches_the_files_with_a_piece_of_its_part(run):
    for server in range(2):
        run.save(server, 1, 5, 0.5)
    run.finish()
    run.wait(1)
    newest = run.keeper.files.newest()
    for servers, files in (
        (1, [["server-0", "server-1"]]),
        (3, [["server-0"], ["server-0", "server-1"], ["server-1"]]),
    ):
        for server, names in enumerate(files):
            run.told.clear()
            given = GivenFiles(Run(run.folder, servers).experiment, run, do_now, print)
            given.offer(f"server-{server}", newest.path)
            ((_, offer),) = run.told
            assert isinstance(offer, CheckpointFiles)
            found = [file.file for file in offer.files]
            assert found == ["index.json", *(f"{name}.safetensors" for name in names)]


@pytest.mark.parametrize("damage", ["index.json", "server-0.safetensors"])
def test_that_a_file_cannot_be_read_is_told_as_if_the_process_had_found_it_out(run, damage):
    for server in range(2):
        run.save(server, 1, 5, 0.5)
    run.finish()
    run.wait(1)
    folder = run.keeper.files.path(1)
    told = []
    given = GivenFiles(run.experiment, run, do_now, lambda *what: told.append(what))
    (folder / damage).unlink()
    run.told.clear()
    given.offer("server-0", folder)
    if not told:
        given.take("server-0", FilePiece(1, 1, 0))
    ((name, why),) = told
    assert name == "server-0"
    assert why.startswith("cannot read its checkpoint: ")
    assert not any(isinstance(message, FilePiece) for _, message in run.told)
