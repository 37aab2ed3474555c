"""Saves the shard of a server for checkpoints, beside its work.

The state is taken in the server's thread, between two messages, and written by another thread. Its
tensors do not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from outpace.config.experiment import Experiment
from outpace.engine.resuming import state_of
from outpace.errors import RunError
from outpace.real.net.checkpoint_messages import (
    CheckpointFailed,
    CheckpointMissed,
    CheckpointPart,
    GiveUpCheckpoint,
    TakeCheckpoint,
    TellVersion,
    VersionReached,
)
from outpace.real.net.clock import RealClock
from outpace.real.node.saving.files import NOT_SAVED
from outpace.real.node.saving.thread import WritingThread
from outpace.record.checkpoints import Checkpoint, Part, ShardRecord, write_shard
from outpace.record.checkpoints.index import Damaged
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.checkpoint.cuts import Cuts
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import WireMessage, server_name
from outpace.sync.shard import Shard


class SavedShard(msgspec.Struct):
    """The encoded content of a server's CheckpointPart."""

    record: ShardRecord
    part: Part


class CheckpointWriter:
    """The requests of the coordinator to save one shard.

    Args:
        shard: returns the shard.
        totals: returns the sums of the server so far.
        send: sends a message to the coordinator.
    """

    def __init__(
        self,
        clock: RealClock,
        shard: Callable[[], Shard],
        totals: Callable[[], Totals],
        send: Callable[[WireMessage], None],
    ) -> None:
        self.cuts = Cuts(shard, self._saved, self._missed)
        self._clock, self._shard, self._totals, self._send = clock, shard, totals, send
        self._folders: dict[int, Path] = {}  # number of a checkpoint -> where it is written
        self._tell_at: int | None = None  # the version that the coordinator waits for
        self._thread = WritingThread(clock)

    def take(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if isinstance(message, TakeCheckpoint):
            self._folders[message.number] = Path(message.folder)
            self.cuts.ask(message.number, message.clock)
        elif isinstance(message, GiveUpCheckpoint):
            self._folders.pop(message.number, None)
            self.cuts.give_up(message.number)
        elif isinstance(message, TellVersion):
            self._tell_at = message.version
            self.updated(self._shard().version)
        else:
            return False
        return True

    def updated(self, version: int) -> None:
        """The shard has this version; tell the coordinator if it waits for it."""
        if self._tell_at is not None and version >= self._tell_at:
            self._tell_at = None
            self._send(VersionReached(version, self._shard().clock))

    def _missed(self, number: int, clock: int) -> None:
        del self._folders[number]
        self._send(CheckpointMissed(number, clock))

    def _saved(self, number: int, state: ShardState) -> None:
        totals = Totals()
        totals.add(self._totals())
        folder = self._folders.pop(number)
        write = partial(_written, number, folder, state, self._clock.now, totals)
        self._thread.do(write, self._send)


def saved_state(path: Path, shard: int, experiment: Experiment) -> ShardState:
    """Return the state of a server of a run that goes on from a checkpoint.

    path: folder of the checkpoint. Raises RunError if it cannot be read.
    """
    try:
        return state_of(Checkpoint(path), experiment, shard)
    except (OSError, Damaged) as error:
        raise RunError(f"{server_name(shard)} cannot read its checkpoint: {error}") from error


def _written(
    number: int, folder: Path, state: ShardState, now: Time, totals: Totals
) -> CheckpointPart | CheckpointFailed:
    """Write the state of a shard; return what to tell the coordinator."""
    try:
        saved = SavedShard(*write_shard(folder, state))
    except NOT_SAVED as error:
        return CheckpointFailed.because(number, error)
    return CheckpointPart(number, now, totals, msgspec.msgpack.encode(saved))
