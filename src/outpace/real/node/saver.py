"""Saves a process of a run for checkpoints, in parallel with its work.

The coordinator asks for a part of a checkpoint. The main thread of the process takes the state at
the moment that `sync.checkpoint.cuts` chooses, and another thread writes it. The tensors of the
state do not change during this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import torch

from outpace.errors import OutpaceError
from outpace.real.background import BackgroundThread, RunInBackground, do_now
from outpace.real.net.checkpoint_messages import (
    CheckpointPart,
    NotSaved,
    TakeCheckpoint,
)
from outpace.record.checkpoints import Part, ShardRecord, write_tensors
from outpace.record.checkpoints.shards import shard_file
from outpace.sync.checkpoint.cuts import Cuts, place_of
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import WireMessage, server_name

if TYPE_CHECKING:
    from outpace.real.node.member import Member
    from outpace.real.node.part import ServerPart

# Errors that prevent a checkpoint, and do not end the run. torch raises RuntimeError if there is no
# memory for a copy, or if models of workers do not fit together.
NOT_SAVED: Final = (OSError, OutpaceError, RuntimeError, MemoryError)


class PartFiles:
    """The files of a checkpoint that one process writes.

    Args:
        folder: the folder of the checkpoint.

    Attributes:
        parts: the parts that were added.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.parts: list[Part] = []

    def add(self, file: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a file. Raises OSError."""
        self.parts.append(write_tensors(self._folder / file, tensors))

    def add_shard(self, state: ShardState, name: str) -> ShardRecord:
        """Add the file of a model; return its record. Raises OSError and ConfigError.

        name: name of the file without its suffix.
        """
        record, tensors = shard_file(state, name=name)
        self.add(record.file, tensors)
        return record


# Adds the files of a part of a checkpoint, and the data for the index. Raises `NOT_SAVED`.
Write: TypeAlias = Callable[[CheckpointPart, PartFiles], None]


class Saver(ABC):
    """The coordinator's requests to save one process.

    Args:
        cuts: calls `_take` when the state must be taken.
    """

    def __init__(self, process: Member, cuts: Cuts) -> None:
        self._process, self._cuts = process, cuts
        # orders to save the state, which is not taken yet
        self._order: TakeCheckpoint | None = None
        self._thread = BackgroundThread(process.clock)

    @abstractmethod
    def _take(self, number: int) -> None:
        """Take the state of the process, and let it be written (`_write`)."""

    # -- orders of the coordinator ---------------------------------------------------

    def take(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if isinstance(message, TakeCheckpoint):
            self._order = message
            self._cuts.ask(message.number, message.clock)
        elif isinstance(message, NotSaved):
            self._order = None
            self._cuts.give_up(message.number)
        else:
            return False
        return True

    def _miss(self, number: int, clock: int) -> None:
        self._order = None
        self._send(NotSaved(number, clock))

    def _taken(self) -> TakeCheckpoint:
        """Return the order whose state is being taken."""
        order, self._order = self._order, None
        assert order is not None
        return order

    def _send(self, message: WireMessage) -> None:
        self._process.coordinator.send(message)

    # -- files -------------------------------------------------------------------------

    def _write(
        self, part: CheckpointPart, folder: str, write: Write, *, at_once: bool = False
    ) -> None:
        """Let a state that was taken be written.

        Args:
            part: the data that are known now.
            folder: folder of the order.
            at_once: True: write the files in this thread, because they are small.
        """
        beside: RunInBackground = do_now if at_once else self._thread.do
        beside(partial(_written, part, folder, write), self._send)


def _written(part: CheckpointPart, folder: str, write: Write) -> CheckpointPart | NotSaved:
    """Write files; return the message to the coordinator."""
    files = PartFiles(folder)
    try:
        write(part, files)
    except NOT_SAVED as error:
        return NotSaved.because(part.number, error)
    part.parts = files.parts
    return part


class ShardSaver(Saver):
    """The requests to save the shard of a server.

    Args:
        part: has the shard, once the shard exists.

    Attributes:
        look: function to call after each message of the shard, before its answers are sent.
    """

    def __init__(self, process: Member, part: ServerPart) -> None:
        cuts = Cuts(lambda: place_of(part.shard), self._take, self._miss)
        super().__init__(process, cuts)
        self._part, self.look = part, cuts.look

    def _take(self, number: int) -> None:
        order, process, state = self._taken(), self._process, self._part.shard.state()
        totals = process.recorder.totals.copy()
        part = CheckpointPart(number, process.clock.now, totals, clock=state.clock)
        self._write(part, order.folder, partial(_add_shard, state))


def _add_shard(state: ShardState, part: CheckpointPart, files: PartFiles) -> None:
    part.shard = files.add_shard(state, server_name(state.shard))
