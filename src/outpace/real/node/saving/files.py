"""The files of a process's part of a checkpoint: written, or held until they are fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from outpace.errors import OutpaceError, RunError
from outpace.real.net.block_frames import PIECE_BYTES, head_of
from outpace.real.net.checkpoint_messages import FilePiece, SendPiece, SentFile
from outpace.record.checkpoints import Part, ShardRecord, write_tensors
from outpace.record.checkpoints.shards import shard_file
from outpace.record.checkpoints.tensors import to_bytes
from outpace.sync.checkpoint.state import ShardState

# Errors that prevent a checkpoint, and do not end the run. torch raises RuntimeError if there is no
# memory for a copy, or if models of workers do not fit together.
NOT_SAVED: Final = (OSError, OutpaceError, RuntimeError, MemoryError)


class PartFiles:
    """The files of one process.

    Args:
        folder: of the checkpoint; empty: it is not seen here, and the files are fetched.

    Attributes:
        parts: those that were written.
        sent: those that are to be fetched, and their contents.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self.parts: list[Part] = []
        self.sent: list[SentFile] = []
        self.contents: list[torch.Tensor] = []

    def add(self, file: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a file, or keep its content. Raises OSError."""
        if self._folder is not None:
            self.parts.append(write_tensors(self._folder / file, tensors))
            return
        data = to_bytes(tensors)
        self.sent.append(SentFile(file, data.numel()))
        self.contents.append(data)

    def add_shard(self, state: ShardState, name: str) -> ShardRecord:
        """Add the file of a model; return its record. Raises OSError and ConfigError.

        name: of the file, without its suffix.
        """
        record, tensors = shard_file(state, name=name)
        self.add(record.file, tensors)
        return record


class HeldFiles:
    """The newest part of a process, until the coordinator has fetched it.

    send: sends a piece to the coordinator.
    """

    def __init__(self, send: Callable[[FilePiece, torch.Tensor], None]) -> None:
        self._send = send
        self._number = 0  # of the checkpoint
        self._contents: Sequence[torch.Tensor] = ()
        self._given_up = 0  # the last one that was

    def hold(self, number: int, contents: Sequence[torch.Tensor]) -> None:
        """Keep these files of a checkpoint, unless it was given up, and no others."""
        if number > self._given_up:
            self._number, self._contents = number, contents

    def give_up(self, number: int) -> None:
        """Forget the files of this checkpoint, also if they come later."""
        self._given_up = max(self._given_up, number)
        if self._number <= number:
            self._contents = ()

    def take(self, request: SendPiece) -> None:
        """Send a piece; the last one is no longer held. Raises RunError if there is none such."""
        begin, contents = request.offset, self._contents
        is_there = request.number == self._number and request.file < len(contents)
        if not is_there or begin >= contents[request.file].numel():
            raise RunError(
                f"the coordinator asks for file {request.file} of checkpoint {request.number}, "
                "which this process does not have"
            )
        content = contents[request.file]
        piece = content[begin : begin + PIECE_BYTES]
        if request.file == len(contents) - 1 and begin + len(piece) == len(content):
            self._contents = ()
        head = head_of(piece)
        self._send(FilePiece(request.number, request.file, request.offset, head), piece)
