"""A server saves its shard for a checkpoint during its work."""

from __future__ import annotations

import threading

import pytest
import torch
from tests.support.checkpoints import same

from outpace.optim import Sgd
from outpace.real.net.checkpoint_messages import (
    NotSaved,
    TakeCheckpoint,
    VersionReached,
)
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import TakeSnapshot
from outpace.real.node import saver
from outpace.real.node.saver import ShardSaver
from outpace.real.node.versions import AwaitedVersions
from outpace.record.checkpoints.shards import read_shard
from outpace.record.totals import Totals
from outpace.sync import Bsp
from outpace.sync.messages import Push
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account


class Server:
    """A shard with one worker under BSP, its writer, and the messages to the coordinator."""

    def __init__(self) -> None:
        # With momentum, parameters and optimizer state change in place.
        block = parameter_block(torch.zeros(3), Sgd(lr=1.0, momentum=0.5))
        self.shard = Shard(0, block, 1, Bsp(), Account())
        self.clock, self.told, self.totals = RealClock(), [], Totals(applied=0)
        self.coordinator, self.recorder, self.snapshots = self, self, []
        self.saver = ShardSaver(self, self)
        self.versions = AwaitedVersions(self.send, self.progress, self.snapshots.append)

    def send(self, message) -> None:
        """Tell the coordinator something."""
        self.told.append(message)

    def progress(self) -> tuple[int, int]:
        return self.shard.version, self.shard.clock

    def push(self) -> None:
        """Accept the push of the worker, as the program of the server does."""
        shard = self.shard
        shard.receive(Push(0, shard.clock, shard.version, torch.ones(3)), shard.clock)
        self.totals.applied += 1
        self.saver.look()
        self.versions.reached(shard.version)

    def hear(self, count: int) -> list:
        """Wait for this many messages and return them."""
        while len(self.told) < count:
            self.clock(None)
        return self.told


@pytest.fixture
def server():
    return Server()


def saved_in(folder, message):
    """Return the state that a CheckpointPart describes."""
    (part,) = message.parts
    assert part.bytes == (folder / part.file).stat().st_size
    return read_shard(folder, message.shard)


def test_a_shard_is_saved_when_it_has_the_clock_that_was_asked_for(server, tmp_path):
    server.saver.take(TakeCheckpoint(1, 2, str(tmp_path)))
    server.push()
    assert server.told == []
    server.push()
    state = server.shard.state()
    server.push()
    (message,) = server.hear(1)
    assert state.clock == 2
    assert same(saved_in(tmp_path, message), state)


def test_what_is_written_is_not_changed_by_later_steps(server, monkeypatch, tmp_path):
    may_go_on, write_tensors = threading.Event(), saver.write_tensors

    def slow(*arguments):
        may_go_on.wait()
        return write_tensors(*arguments)

    monkeypatch.setattr(saver, "write_tensors", slow)
    server.push()
    server.saver.take(TakeCheckpoint(1, None, str(tmp_path)))
    for _ in range(3):
        server.push()
    may_go_on.set()
    (message,) = server.hear(1)
    found = saved_in(tmp_path, message)
    assert found.parameters.tolist() == [-1.0, -1.0, -1.0]
    assert found.optimizer[0]["momentum_buffer"].tolist() == [1.0, 1.0, 1.0]
    assert message.totals.applied == 1


def test_what_cannot_be_written_is_told(server, tmp_path):
    server.saver.take(TakeCheckpoint(3, None, str(tmp_path / "missing")))
    (message,) = server.hear(1)
    assert isinstance(message, NotSaved)
    assert (message.number, "No such file" in message.why) == (3, True)


def test_the_coordinator_is_told_of_a_version_once(server):
    server.versions.ask(TakeSnapshot(0, 2))
    server.push()
    assert server.told == []
    server.push()
    server.push()
    assert server.told == [VersionReached(2, 2)]
    server.versions.ask(TakeSnapshot(0, 2))  # it has been reached already
    assert server.told[1:] == [VersionReached(3, 3)]


def test_each_snapshot_is_sent_once_when_there_is_its_version(server):
    for request, version in ((1, 2), (2, 1), (3, 2), (4, 0)):
        server.versions.ask(TakeSnapshot(request, version))
    assert server.snapshots == [4]
    server.push()
    assert server.snapshots == [4, 2]
    server.push()
    server.push()
    assert server.snapshots == [4, 2, 1, 3]
    assert server.told == []
