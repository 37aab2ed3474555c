"""Fetches files of checkpoints from other processes, piece by piece.

A process has its files until all their pieces were asked for (`real.net.fetch`). The coordinator
fetches the parts of a checkpoint from processes that do not see the folder of the run; a process
fetches those with which it begins again from the coordinator. Several processes send at a time,
since some look at their messages only between two iterations. What is on the way is not more than
the largest part, or 64 MiB.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import torch

from outpace.blocks.block import Block
from outpace.errors import ProtocolError, RunError
from outpace.kernel import Future, Kernel, Mailbox
from outpace.real.background import Beside, do_now
from outpace.real.net.checkpoint_messages import (
    CheckpointFiles,
    FilePiece,
    SentFile,
)
from outpace.real.net.fetch import Fetch
from outpace.record.checkpoints import Part
from outpace.sync.messages import WireMessage

_AT_ONCE: Final = 16  # processes, each of which has a sixteenth of its part on the way, or 4 MiB
_Done: TypeAlias = Callable[[list[Part] | OSError], None]
_COORDINATOR: Final = ""  # a name for the only process from which a member fetches


class FilesInPieces:
    """Files of one process, whose pieces are written one after the other.

    Attributes:
        parts: the files that are complete, which are on the disk.
        is_given_up: no more is written: the folder may be another checkpoint's soon.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._crc32 = self._size = 0
        self.is_given_up = False
        self.parts: list[Part] = []

    def add(self, name: str, data: torch.Tensor, *, is_last: bool) -> OSError | None:
        """Write the next piece, of the file of this name; return why it cannot be written.

        is_last: it ends the file.
        """
        if self.is_given_up:
            return OSError("the checkpoint was given up")
        try:
            if self._file is None:
                self._file = (self._folder / Path(name).name).open("xb")
                self._crc32 = self._size = 0
            content = data.numpy().data
            self._file.write(content)
            self._crc32, self._size = zlib.crc32(content, self._crc32), self._size + len(content)
            if is_last:
                self._file.flush()
                os.fsync(self._file.fileno())
                self.close()
                self.parts.append(Part(name, self._size, self._crc32))
        except OSError as error:
            self.close()
            return error
        return None

    def close(self) -> None:
        """Close the file that is not complete, if there is one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _Coming:
    """The files of one process. done: called when they are written, or cannot be."""

    def __init__(self, number: int, files: Sequence[SentFile], folder: Path, done: _Done) -> None:
        self.fetch, self.files, self.done = Fetch(number, files), files, done
        self.written = FilesInPieces(folder)


class FetchedFiles:
    """The files of a checkpoint that processes have announced.

    Args:
        send: sends a request to a process.
        beside: writes the files.
    """

    def __init__(self, send: Callable[[str, WireMessage], None], beside: Beside) -> None:
        self._send, self._beside = send, beside
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
        """Forget all files that are not written."""
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
                self._send(name, request)


class OwnFiles:
    """The files with which this process goes on, and which the coordinator has.

    Args:
        name: of this process.
        send: sends a message to the coordinator.
    """

    def __init__(self, name: str, kernel: Kernel, send: Callable[[WireMessage], None]) -> None:
        self._name, self._kernel, self._send = name, kernel, send
        self._announced = Mailbox[CheckpointFiles](kernel, "the files of the checkpoint")
        self._fetched = FetchedFiles(lambda _, request: send(request), do_now)

    def expected(self, message: WireMessage) -> tuple[str, int] | None:
        """Return which block may come with a message."""
        if not isinstance(message, FilePiece):
            return None
        return self._fetched.expected(_COORDINATOR, message)

    def take(self, message: WireMessage, block: Block | None) -> bool:
        """Handle a message of the coordinator; False if it is not about these files."""
        if isinstance(message, CheckpointFiles):
            self._announced.put(message)
        elif isinstance(message, FilePiece):
            self._fetched.take(_COORDINATOR, message, block)
        else:
            return False
        return True

    async def into(self, folder: Path) -> None:
        """Write the files that the coordinator announces into a folder.

        Raises:
            RunError: if they cannot be written.
        """
        message = await self._announced.get()
        arrived = Future[list[Part] | OSError](self._kernel, "a piece of the checkpoint")

        def done(files: list[Part] | OSError) -> None:
            self._fetched.give_up()  # after an error no more is written
            arrived.set(files)

        try:
            self._fetched.add(_COORDINATOR, message.number, message.files, folder, done)
            found: object = await arrived
        except ProtocolError as error:
            found = error
        if isinstance(found, Exception):
            raise RunError(f"{self._name} cannot receive its checkpoint: {found}") from found
        self._send(CheckpointFiles(message.number, []))
