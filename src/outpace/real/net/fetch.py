"""Files that go over a connection in pieces, which their receiver asks for. No IO.

The receiver (`Fetch`) has asked for a few pieces at any time, and asks for more as it writes them.
So neither process has much of a file on its way, and other messages pass between two pieces. The
sender (`Pieces`) accepts only the request that is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from outpace.errors import ProtocolError
from outpace.real.net.block_frames import PIECE_BYTES
from outpace.real.net.checkpoint_messages import FilePiece, SentFile

LEAST_ON_THE_WAY: Final = 4 * PIECE_BYTES
# A process may look at its messages only between two iterations, and answers all requests then.
_ANSWERS: Final = 16  # after which it has sent everything, at most


class Pieces:
    """The requests for files that were announced, in their order."""

    def __init__(self, number: int, files: Sequence[SentFile]) -> None:
        self._rest = _pieces(number, files)
        self._next = next(self._rest, None)

    @property
    def is_done(self) -> bool:
        """True if all pieces were asked for."""
        return self._next is None

    def size(self, request: FilePiece) -> int:
        """Return the bytes of the piece that is asked for, and await the next request.

        Raises ProtocolError if it is not the one that is due.
        """
        if self._next is None or request != self._next[0]:
            raise ProtocolError(
                f"it asks for file {request.file} of checkpoint {request.number} from byte "
                f"{request.offset} on, which is not due"
            )
        size = self._next[1]
        self._next = next(self._rest, None)
        return size


class Fetch:
    """What to ask for of files that were announced, and which pieces are awaited.

    Raises ProtocolError if a file is empty.
    """

    def __init__(self, number: int, files: Sequence[SentFile]) -> None:
        if not all(file.bytes for file in files):
            raise ProtocolError(f"it announces an empty file for checkpoint {number}")
        self._rest = _pieces(number, files)
        self._awaited = deque[tuple[FilePiece, int]]()
        self._unwritten = 0  # bytes that were asked for
        self._most = max(LEAST_ON_THE_WAY, sum(file.bytes for file in files) // _ANSWERS)
        self._next = next(self._rest, None)

    def ask(self) -> list[FilePiece]:
        """Return the requests to send now."""
        asked = []
        while self._next is not None and self._unwritten + self._next[1] <= self._most:
            asked.append(self._next[0])
            self._awaited.append(self._next)
            self._unwritten += self._next[1]
            self._next = next(self._rest, None)
        return asked

    def due(self, piece: FilePiece) -> int | None:
        """Return the bytes of a piece if it is the next one to arrive; None if it is not."""
        if not self._awaited:
            return None
        request, size = self._awaited[0]
        place = request.number, request.file, request.offset
        return size if place == (piece.number, piece.file, piece.offset) else None

    def take(self) -> None:
        """The piece that is due has arrived."""
        self._awaited.popleft()

    def written(self, size: int) -> None:
        """So many bytes need no memory any more."""
        self._unwritten -= size

    @property
    def is_done(self) -> bool:
        """True if all files are written."""
        return self._next is None and self._unwritten == 0


def _pieces(number: int, files: Sequence[SentFile]) -> Iterator[tuple[FilePiece, int]]:
    """Yield each request, and the bytes of the piece."""
    for place, file in enumerate(files):
        for offset in range(0, file.bytes, PIECE_BYTES):
            size = min(PIECE_BYTES, file.bytes - offset)
            yield FilePiece(number, place, offset), size
