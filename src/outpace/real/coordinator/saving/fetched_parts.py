"""Fetches the parts of a checkpoint from processes that do not see the folder of the run.

Each process has its files until the coordinator has asked for all their pieces (`real.net.fetch`).
A thread writes them. Several processes send at a time, since some look at their messages only
between two iterations. What is on the way is not more than the largest part, or 64 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import torch

from outpace.blocks.block import Block
from outpace.errors import ProtocolError
from outpace.real.coordinator.saving.writer import FilesInPieces
from outpace.real.net.checkpoint_messages import FilePiece, SentFile
from outpace.real.net.fetch import Fetch
from outpace.real.net.transport import Listener
from outpace.real.node.saving.thread import Beside
from outpace.record.checkpoints import Part

_AT_ONCE: Final = 16  # processes, each of which has a sixteenth of its part on the way, or 4 MiB
_Done: TypeAlias = Callable[[list[Part] | OSError], None]


class _Coming:
    """The part of one process. done: called when it is written, or cannot be."""

    def __init__(self, number: int, files: Sequence[SentFile], folder: Path, done: _Done) -> None:
        self.fetch, self.files, self.done = Fetch(number, files), files, done
        self.written = FilesInPieces(folder)


class FetchedParts:
    """The parts of the open checkpoint that processes have announced.

    Args:
        beside: writes the files.
    """

    def __init__(self, listener: Listener, beside: Beside) -> None:
        self._listener, self._beside = listener, beside
        self._coming: dict[str, _Coming] = {}  # by process, in the order of their announcements
        self._late: dict[str, Fetch] = {}  # pieces that still arrive of what was given up
        self._has_moved = False

    def add(
        self, name: str, number: int, files: Sequence[SentFile], folder: Path, done: _Done
    ) -> None:
        """Fetch the files that a process has announced; then call `done` with them, or an error.

        Raises ProtocolError if it has announced files before, or an empty one.
        """
        if name in self._coming:
            raise ProtocolError("it has saved its part before")
        # The process has answered all requests before it has taken the next state.
        self._coming[name] = _Coming(number, files, folder, done)
        self._late.pop(name, None)
        self._ask()

    def give_up(self) -> None:
        """Forget all parts that are not written."""
        for name, coming in self._coming.items():
            self._late[name] = coming.fetch
            coming.written.is_given_up = True
            self._beside(coming.written.close, lambda _: None)
        self._coming.clear()

    def has_moved(self) -> bool:
        """True if something was written since the last call."""
        moved, self._has_moved = self._has_moved, False
        return moved

    # -- pieces ------------------------------------------------------------------------

    def expected(self, name: str, message: FilePiece) -> tuple[str, int] | None:
        """Return which block may come with a piece."""
        for fetch in self._fetches(name):
            if (size := fetch.due(message)) is not None:
                return "uint8", size
        return None

    def take(self, name: str, message: FilePiece, block: Block | None) -> None:
        """Have a piece written. Raises ProtocolError if it was not asked for."""
        coming, late = self._coming.get(name), self._late.get(name)
        if not isinstance(block, torch.Tensor):
            raise ProtocolError("it sends a piece of a file without its content")
        if coming is not None and coming.fetch.due(message) == block.numel():
            coming.fetch.take()
            file = coming.files[message.file]
            is_last = message.offset + block.numel() == file.bytes
            write = partial(coming.written.add, file.name, block, is_last=is_last)
            self._beside(write, partial(self._has_written, name, coming, block.numel()))
        elif late is not None and late.due(message) == block.numel():
            late.take()
        else:
            raise ProtocolError("it sends a piece of a file that it was not asked for")

    def _fetches(self, name: str) -> list[Fetch]:
        coming, late = self._coming.get(name), self._late.get(name)
        return [each for each in (None if coming is None else coming.fetch, late) if each]

    def _has_written(self, name: str, coming: _Coming, size: int, error: OSError | None) -> None:
        if self._coming.get(name) is not coming:
            return  # it was given up
        self._has_moved = True
        coming.fetch.written(size)
        if error is not None:
            coming.done(error)  # gives all parts up
        elif coming.fetch.is_done:
            del self._coming[name]
            coming.done(coming.written.parts)
        self._ask()

    def _ask(self) -> None:
        for name, coming in islice(self._coming.items(), _AT_ONCE):
            for request in coming.fetch.ask():
                self._listener.send(name, request)
