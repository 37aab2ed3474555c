"""Copies files of checkpoints between processes, piece by piece.

The receiver asks for the pieces, in the order of the files and of their content. It has asked for a
few at any time, and asks for more as it writes them. So neither process has much of a file on its
way, and other messages pass between two pieces. A file whose checksum is not the announced one is
an error.

The coordinator fetches the parts of a checkpoint from processes that do not see the folder of the
run; a process fetches the files with which it is resumed from the coordinator. Several processes
send at a time, since some look at their messages only between two iterations. What is on the way is
not more than the largest part, or 64 MiB.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import torch

from outpace.blocks.block import whole_tensor
from outpace.errors import ProtocolError, RunError
from outpace.kernel import Future, Kernel, Mailbox
from outpace.real.background import RunInBackground, do_now
from outpace.real.net.block_frames import PIECE_BYTES, head_in
from outpace.real.net.checkpoint_messages import CheckpointFiles, FilePiece
from outpace.record.checkpoints.tensors import Part
from outpace.sync.messages import WireMessage

LEAST_ON_THE_WAY: Final = 4 * PIECE_BYTES
# A process may look at its messages only between two iterations, and answers all requests then.
_ANSWERS: Final = 16  # after which it has sent everything, at most
# Processes that send at the same time. Each has a sixteenth of its part on the way, at least 4 MiB.
_AT_ONCE: Final = 16
_COORDINATOR: Final = ""  # a name for the only process from which a member fetches


@dataclass(frozen=True, slots=True)
class Offer:
    """Files of a checkpoint that a process has announced. number: of the checkpoint."""

    number: int
    files: Sequence[Part]

    def piece_bytes(self, piece: FilePiece) -> int:
        """Return the bytes of a piece. Raises ProtocolError if these files have no such piece."""
        file = self.files[piece.file] if piece.file < len(self.files) else Part("", 0, 0)
        is_one = piece.number == self.number and piece.offset % PIECE_BYTES == 0
        if not is_one or piece.offset >= file.bytes:
            raise ProtocolError(
                f"it asks for file {piece.file} of checkpoint {piece.number} from byte "
                f"{piece.offset} on, which it was not offered"
            )
        return min(PIECE_BYTES, file.bytes - piece.offset)

    def pieces(self) -> list[FilePiece]:
        """Return the requests for all pieces, in the order in which they are asked for."""
        return [
            FilePiece(self.number, place, offset)
            for place, file in enumerate(self.files)
            for offset in range(0, file.bytes, PIECE_BYTES)
        ]


class Incoming:
    """The files of one process: what to ask for, which pieces are awaited, and what is written.

    Attributes:
        done: called once all are written, or with the error that prevents it.
        is_given_up: no more is written: the folder may be another checkpoint's soon.

    Raises:
        ProtocolError: if a file is empty.
    """

    def __init__(self, offer: Offer, folder: Path, done: Callable[[OSError | None], None]) -> None:
        if not all(file.bytes > 0 for file in offer.files):
            raise ProtocolError(f"it announces an empty file for checkpoint {offer.number}")
        self._offer, self._folder, self.done = offer, folder, done
        self._most = max(LEAST_ON_THE_WAY, sum(file.bytes for file in offer.files) // _ANSWERS)
        self._rest = deque(offer.pieces())  # not asked for yet
        self._awaited = deque[FilePiece]()
        self._unwritten = 0  # bytes that were asked for
        self._crc32 = 0  # of the file that is being written, so far
        self.is_given_up = False

    def ask(self) -> list[FilePiece]:
        """Return the requests to send now."""
        asked = []
        while self._rest:
            size = self._offer.piece_bytes(self._rest[0])
            if self._unwritten + size > self._most:
                break
            asked.append(self._rest.popleft())
            self._awaited.append(asked[-1])
            self._unwritten += size
        return asked

    def due(self, piece: FilePiece) -> int | None:
        """Return the bytes of a piece if it is the next one to arrive; None if it is not."""
        request = msgspec.structs.replace(piece, block=None)
        if not self._awaited or request != self._awaited[0]:
            return None
        return self._offer.piece_bytes(piece)

    def take(self) -> None:
        """The piece that is due has arrived."""
        self._awaited.popleft()

    def write(self, piece: FilePiece, data: torch.Tensor) -> OSError | None:
        """Write a piece, in whatever thread; return why it cannot be written."""
        if self.is_given_up:
            return OSError("the checkpoint was given up")
        file, content = self._offer.files[piece.file], data.numpy().data
        try:
            with (self._folder / Path(file.file).name).open("ab" if piece.offset else "xb") as to:
                to.write(content)
                self._crc32 = zlib.crc32(content, self._crc32 if piece.offset else 0)
                if piece.offset + len(content) == file.bytes:
                    to.flush()
                    os.fsync(to.fileno())
                    if self._crc32 != file.crc32:
                        raise OSError(f"{file.file} did not arrive as it was written")
        except OSError as error:
            return error
        return None

    def written(self, size: int) -> None:
        """So many bytes need no memory any more."""
        self._unwritten -= size

    @property
    def is_done(self) -> bool:
        """True if all files are written."""
        return not self._rest and self._unwritten == 0


class FetchedFiles:
    """The files of a checkpoint that processes have announced.

    Args:
        send: sends a request to a process.
        beside: writes the files.
    """

    def __init__(self, send: Callable[[str, WireMessage], None], beside: RunInBackground) -> None:
        self._send, self._beside = send, beside
        self._incoming: dict[str, Incoming] = {}  # by process, in the order of announcements
        # By process: the last checkpoint that was given up, of which pieces may still arrive.
        self._given_up: dict[str, int] = {}
        self._has_moved = False

    def add(
        self, name: str, offer: Offer, folder: Path, done: Callable[[OSError | None], None]
    ) -> None:
        """Fetch the files that a process has announced; then call `done`, or with an error.

        Raises ProtocolError if it has announced files before, or an empty one.
        """
        if name in self._incoming:
            raise ProtocolError("it has saved its part before")
        self._incoming[name] = Incoming(offer, folder, done)
        self._given_up.setdefault(name, 0)
        self._ask()

    def give_up(self, number: int) -> None:
        """Forget all files that are not written, which are of this checkpoint."""
        for name, incoming in self._incoming.items():
            incoming.is_given_up = True
            self._given_up[name] = number
        self._incoming.clear()

    def has_moved(self) -> bool:
        """True if something was written since the last call."""
        moved, self._has_moved = self._has_moved, False
        return moved

    # -- pieces ------------------------------------------------------------------------

    def expected(self, name: str, piece: FilePiece) -> tuple[str, int] | None:
        """Return which block may come with a piece."""
        incoming = self._incoming.get(name)
        size = None if incoming is None else incoming.due(piece)
        head = head_in(piece)
        if size is None and self._is_late(name, piece) and head is not None:
            size = min(head.elements, PIECE_BYTES)
        return None if size is None else ("uint8", size)

    def _is_late(self, name: str, piece: FilePiece) -> bool:
        """True if a piece may be of a checkpoint that was given up after it was asked for."""
        return piece.number <= self._given_up.get(name, 0)

    def take(self, name: str, piece: FilePiece) -> None:
        """Have a piece written. Raises ProtocolError if it was not asked for."""
        incoming = self._incoming.get(name)
        if piece.block is None:
            raise ProtocolError("it sends a piece of a file without its content")
        block = whole_tensor(piece.block)
        if incoming is not None and incoming.due(piece) == block.numel():
            incoming.take()
            write = partial(incoming.write, piece, block)
            self._beside(write, partial(self._has_written, name, incoming, block.numel()))
        elif not self._is_late(name, piece):
            raise ProtocolError("it sends a piece of a file that it was not asked for")

    def _has_written(self, name: str, incoming: Incoming, size: int, error: OSError | None) -> None:
        if incoming.is_given_up:
            return
        self._has_moved = True
        incoming.written(size)
        if error is not None:
            incoming.done(error)  # gives all parts up
        elif incoming.is_done:
            del self._incoming[name]
            incoming.done(None)
        self._ask()

    def _ask(self) -> None:
        for name, incoming in islice(self._incoming.items(), _AT_ONCE):
            for request in incoming.ask():
                self._send(name, request)


class OwnFiles:
    """The files with which this process is resumed, and which the coordinator has.

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

    def take(self, message: WireMessage) -> bool:
        """Handle a message of the coordinator; False if it is not about these files."""
        if isinstance(message, CheckpointFiles):
            self._announced.put(message)
        elif isinstance(message, FilePiece):
            self._fetched.take(_COORDINATOR, message)
        else:
            return False
        return True

    async def into(self, folder: Path) -> None:
        """Write the files that the coordinator announces into a folder.

        Raises:
            RunError: if they cannot be written.
        """
        message = await self._announced.get()
        arrived = Future[OSError | None](self._kernel, "a piece of the checkpoint")
        try:
            offer = Offer(message.number, message.files)
            self._fetched.add(_COORDINATOR, offer, folder, arrived.set)
            error: Exception | None = await arrived
        except ProtocolError as refused:
            error = refused
        self._fetched.give_up(message.number)  # after an error no more is written
        if error is not None:
            raise RunError(f"{self._name} cannot receive its checkpoint: {error}") from error
        self._send(CheckpointFiles(message.number, []))
