"""Saves the shard of a server for checkpoints, beside its work.

The state is taken in the server's thread, between two messages, and written by another thread. Its
tensors do not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import torch

from outpace.config.experiment import Experiment
from outpace.engine.resuming import state_of
from outpace.errors import RunError
from outpace.real.net.checkpoint_messages import (
    CheckpointFailed,
    CheckpointMissed,
    CheckpointPart,
    GiveUpCheckpoint,
    SendPiece,
    TakeCheckpoint,
    TellVersion,
    VersionReached,
)
from outpace.real.net.clock import RealClock
from outpace.real.node.saving.files import NOT_SAVED, HeldFiles, PartFiles
from outpace.real.node.saving.thread import WritingThread
from outpace.real.node.serving.part import ServerPart
from outpace.record.checkpoints import Checkpoint, Part, ShardRecord, write_shard
from outpace.record.checkpoints.committed import Damaged
from outpace.record.recorder import Recorder
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.checkpoint.cuts import Cuts, place_of
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import WireMessage, server_name

# A message, and the contents of the files that it announces.
_Answer: TypeAlias = tuple[CheckpointPart | CheckpointFailed, Sequence[torch.Tensor]]


class SavedShard(msgspec.Struct):
    """The encoded content of a server's CheckpointPart. part: None if the file is fetched."""

    record: ShardRecord
    part: Part | None = None


class CheckpointWriter:
    """The requests of the coordinator to save one shard.

    Args:
        part: has the shard, once there is one.
        recorder: has the sums of the server so far.
        send: sends a message to the coordinator, and a block with it.
    """

    def __init__(
        self,
        clock: RealClock,
        part: ServerPart,
        recorder: Recorder,
        send: Callable[..., None],
    ) -> None:
        self.cuts = Cuts(lambda: place_of(part.shard), self._save, self._missed)
        self._clock, self._part, self._recorder, self._send = clock, part, recorder, send
        # Number of a checkpoint -> where it is written; empty: it is fetched.
        self._folders: dict[int, str] = {}
        self._tell_at: int | None = None  # the version that the coordinator waits for
        self._thread = WritingThread(clock)
        self._held = HeldFiles(send)

    def take(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if isinstance(message, TakeCheckpoint):
            self._folders[message.number] = message.folder
            self.cuts.ask(message.number, message.clock)
        elif isinstance(message, GiveUpCheckpoint):
            self._folders.pop(message.number, None)
            self.cuts.give_up(message.number)
            self._held.give_up(message.number)
        elif isinstance(message, SendPiece):
            self._held.take(message)
        elif isinstance(message, TellVersion):
            self._tell_at = message.version
            self.updated(self._part.shard.version)
        else:
            return False
        return True

    def updated(self, version: int) -> None:
        """The shard has this version; tell the coordinator if it waits for it."""
        if self._tell_at is not None and version >= self._tell_at:
            self._tell_at = None
            self._send(VersionReached(version, self._part.shard.clock))

    def _missed(self, number: int, clock: int) -> None:
        del self._folders[number]
        self._send(CheckpointMissed(number, clock))

    def _save(self, number: int) -> None:
        state = self._part.shard.state()
        totals = Totals()
        totals.add(self._recorder.totals)
        folder = self._folders.pop(number)
        write = partial(_written, number, folder, state, self._clock.now, totals)
        self._thread.do(write, self._answer)

    def _answer(self, answer: _Answer) -> None:
        message, contents = answer
        self._held.hold(message.number, contents)
        self._send(message)


def saved_state(path: Path, shard: int, experiment: Experiment) -> ShardState:
    """Return the state of a server of a run that goes on from a checkpoint.

    path: folder of the checkpoint. Raises RunError if it cannot be read.
    """
    try:
        return state_of(Checkpoint(path), experiment, shard)
    except (OSError, Damaged) as error:
        raise RunError(f"{server_name(shard)} cannot read its checkpoint: {error}") from error


def _written(number: int, folder: str, state: ShardState, now: Time, totals: Totals) -> _Answer:
    """Write the state of a shard, if its folder is seen; return what to tell the coordinator."""
    files = PartFiles("")
    try:
        if folder:
            saved = SavedShard(*write_shard(Path(folder), state))
        else:
            saved = SavedShard(files.add_shard(state, server_name(state.shard)))
    except NOT_SAVED as error:
        return CheckpointFailed.because(number, error), ()
    encoded = msgspec.msgpack.encode(saved)
    return CheckpointPart(number, now, totals, encoded, files.sent), files.contents
