"""The files of a worker's part of a checkpoint: written, or sent where the folder is not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from outpace.errors import OutpaceError
from outpace.real.net.checkpoint_messages import SentFile
from outpace.record.checkpoints import Part, ShardRecord, write_tensors
from outpace.record.checkpoints.shards import shard_file
from outpace.record.checkpoints.tensors import to_bytes
from outpace.sync.checkpoint.state import ShardState

# Errors that prevent a checkpoint, and do not end the run. torch raises RuntimeError if there is no
# memory for a copy, or if models of workers do not fit together.
NOT_SAVED: Final = (OSError, OutpaceError, RuntimeError, MemoryError)


class PartFiles:
    """The files of one worker.

    Args:
        folder: of the checkpoint; empty: the files are sent.

    Attributes:
        parts: those that were written.
        sent: those that are to be sent.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self.parts: list[Part] = []
        self.sent: list[SentFile] = []
        self._data: list[torch.Tensor] = []

    def add(self, file: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a file, or keep its content. Raises OSError."""
        if self._folder is not None:
            self.parts.append(write_tensors(self._folder / file, tensors))
            return
        data = to_bytes(tensors)
        self.sent.append(SentFile(file, data.numel()))
        self._data.append(data)

    def add_shard(self, state: ShardState, name: str) -> ShardRecord:
        """Add the file of a model; return its record. Raises OSError and ConfigError.

        name: of the file, without its suffix.
        """
        record, tensors = shard_file(state, name=name)
        self.add(record.file, tensors)
        return record

    @property
    def block(self) -> torch.Tensor | None:
        """The content of the files that are sent, one after the other; None if none is."""
        return torch.cat(self._data) if self._data else None


def contents(files: Sequence[SentFile], block: torch.Tensor) -> list[torch.Tensor]:
    """Return the content of each file, a view of the block. Raises ValueError if they differ."""
    sizes = [file.bytes for file in files]
    if sum(sizes) != block.numel():
        raise ValueError(f"it sends {block.numel():,} bytes of files that have {sum(sizes):,}")
    return list(torch.split(block, sizes))
