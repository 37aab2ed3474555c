"""Saves a process of a run for checkpoints, beside its work.

The coordinator asks for a part of a checkpoint. The state is taken in the thread of the process, at
the moment that `sync.checkpoint.cuts` says, and another thread writes it. Its tensors do not change
meanwhile. A process that does not see the folder of the run has the files in memory, until the
coordinator has fetched them.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import torch

from outpace.errors import OutpaceError, ProtocolError, RunError
from outpace.real.background import BackgroundThread, RunInBackground, do_now
from outpace.real.copying import Offer
from outpace.real.net.checkpoint_messages import (
    CheckpointPart,
    FilePiece,
    NotSaved,
    TakeCheckpoint,
)
from outpace.record.checkpoints import Part, ShardRecord, write_tensors
from outpace.record.checkpoints.shards import shard_file
from outpace.record.checkpoints.tensors import to_bytes
from outpace.sync.checkpoint.cuts import Cuts, place_of
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import WireMessage, server_name

if TYPE_CHECKING:
    from outpace.real.node.member import Member
    from outpace.real.node.serving.part import ServerPart

# Errors that prevent a checkpoint, and do not end the run. torch raises RuntimeError if there is no
# memory for a copy, or if models of workers do not fit together.
NOT_SAVED: Final = (OSError, OutpaceError, RuntimeError, MemoryError)


class PartFiles:
    """The files of one process.

    Args:
        folder: of the checkpoint; empty: it is not seen here, and the files are fetched.

    Attributes:
        parts: those that were added.
        contents: of files that are to be fetched, in this order.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self.parts: list[Part] = []
        self.contents: list[torch.Tensor] = []

    def add(self, file: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a file, or keep its content. Raises OSError."""
        if self._folder is not None:
            self.parts.append(write_tensors(self._folder / file, tensors))
            return
        data = to_bytes(tensors)
        self.parts.append(Part(file, data.numel(), zlib.crc32(data.numpy().data)))
        self.contents.append(data)

    def add_shard(self, state: ShardState, name: str) -> ShardRecord:
        """Add the file of a model; return its record. Raises OSError and ConfigError.

        name: of the file, without its suffix.
        """
        record, tensors = shard_file(state, name=name)
        self.add(record.file, tensors)
        return record


# Adds the files of a part of a checkpoint, and what is to be in the index. Raises `NOT_SAVED`.
Write: TypeAlias = Callable[[CheckpointPart, PartFiles], None]


class Saver(ABC):
    """The requests of the coordinator to save one process.

    Args:
        cuts: tell when the state is to be taken, by `_take`.
    """

    def __init__(self, process: Member, cuts: Cuts) -> None:
        self._process, self._cuts = process, cuts
        self._order: TakeCheckpoint | None = None  # to save the state, which is not taken yet
        self._thread = BackgroundThread(process.clock)
        # The newest part, until the coordinator has fetched it.
        self._offer, self._contents = Offer(0, ()), list[torch.Tensor]()
        self._given_up = 0  # the last checkpoint that was

    @abstractmethod
    def _take(self, number: int) -> None:
        """Take the state of the process, and have it written (`_write`)."""

    # -- orders of the coordinator ---------------------------------------------------

    def take(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if isinstance(message, TakeCheckpoint):
            self._order = message
            self._cuts.ask(message.number, message.clock)
        elif isinstance(message, NotSaved):
            self._order = None
            self._cuts.give_up(message.number)
            self._given_up = max(self._given_up, message.number)
            self._contents = []
        elif isinstance(message, FilePiece) and message.block is None:
            self._send_piece(message)
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
        """Have a state that was taken written, or held until it is fetched.

        Args:
            part: what is known of it now.
            folder: of the order.
            at_once: write the files in this thread, since they are small.
        """
        beside: RunInBackground = do_now if at_once else self._thread.do
        beside(partial(_written, part, folder, write), self._answer)

    def _answer(self, answer: tuple[CheckpointPart | NotSaved, list[torch.Tensor]]) -> None:
        message, contents = answer
        # It may have been given up while the thread wrote.
        if isinstance(message, CheckpointPart) and message.number > self._given_up:
            self._offer, self._contents = Offer(message.number, message.parts), contents
        self._send(message)

    def _send_piece(self, request: FilePiece) -> None:
        """Send a piece; after the last one the files are no longer held. Raises RunError."""
        try:
            if not self._contents:
                raise ProtocolError("it asks for files that this process does not have")
            size = self._offer.piece_bytes(request)
        except ProtocolError as error:
            raise RunError(f"the coordinator is refused: {error}") from error
        content = self._contents[request.file]
        piece = content[request.offset : request.offset + size]
        is_last = request.offset + size == content.numel()
        if is_last and request.file == len(self._contents) - 1:
            self._contents = []
        self._send(FilePiece(request.number, request.file, request.offset, piece))


def _written(
    part: CheckpointPart, folder: str, write: Write
) -> tuple[CheckpointPart | NotSaved, list[torch.Tensor]]:
    """Write files; return what to tell the coordinator, and contents that it is to fetch."""
    files = PartFiles(folder)
    try:
        write(part, files)
    except NOT_SAVED as error:
        return NotSaved.because(part.number, error), []
    part.parts = files.parts
    return part, files.contents


class ShardSaver(Saver):
    """The requests to save the shard of a server.

    Args:
        part: has the shard, once there is one.

    Attributes:
        look: to be called after each message of the shard, before its answers are sent.
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
