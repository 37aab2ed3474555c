"""Messages to frames and back, without any IO.

A message is a header frame (msgpack, see `messages`) and, where it carries a block, a frame
with the block's first piece; the other pieces follow, each behind a small header of its
own. A large block stays in the memory in which its pieces came (`outpace.blocks.pieces`).
Pieces of a megabyte are checked while they are still in a cache and the next is under
way, and their memory is found again for the next block.

Nothing is trusted. Run, membership epoch and serial number must be the expected ones, so
that frames of another run, and frames played again, are refused; only then is the message
decoded, which must fit its types; a block must have the dtype and length that its receiver
expects before a piece of it is kept. Whatever is wrong raises WireError and the receiver
is as it was. There is no pickle and nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import torch

from outpace.blocks.block import Block, Phantom, whole
from outpace.blocks.pieces import Pieces
from outpace.errors import ProtocolError
from outpace.real.net.messages import (
    DTYPES,
    PHANTOM,
    BlockHead,
    BlockPiece,
    Envelope,
    Header,
    WireMessage,
)

PIECE_BYTES: Final = 1 << 20
HEADER_BYTES: Final = 1 << 22  # no header is longer

Frame: TypeAlias = Any  # bytes, memoryview, or anything with the buffer protocol
# What block may come with this message, as (dtype, elements); None: whatever it is, refuse.
Expect: TypeAlias = Callable[[WireMessage], "tuple[str, int] | None"]

_ENCODER: Final = msgspec.msgpack.Encoder()
_ENVELOPES: Final[msgspec.msgpack.Decoder[Envelope]] = msgspec.msgpack.Decoder(Envelope)
_MESSAGES: Final[msgspec.msgpack.Decoder[WireMessage]] = msgspec.msgpack.Decoder(WireMessage)
_ZEROS: Final = memoryview(bytes(PIECE_BYTES))
_REASON: Final = 200  # characters of an error, which may quote what came in

T = TypeVar("T")


class WireError(ProtocolError):
    """What came in is not a message of this run."""


def head_of(block: Block) -> BlockHead:
    """What the receiver is told about a block."""
    if isinstance(block, Phantom):
        return BlockHead(PHANTOM, block.nbytes)
    return BlockHead(str(block.dtype).removeprefix("torch."), block.numel())


def block_elements(dtype: str, part: slice) -> int:
    """The elements on the wire of this part of the parameters; a phantom counts bytes."""
    elements: int = part.stop - part.start
    return elements * (4 if dtype == PHANTOM else 1)


class Outgoing:
    """One direction of one connection: numbers the messages."""

    __slots__ = ("_epoch", "_run", "_serial")

    def __init__(self, run: int, epoch: int) -> None:
        self._run, self._epoch, self._serial = run, epoch, 0

    def frames(self, message: WireMessage, block: Block | None = None) -> Iterator[list[Frame]]:
        """The parts to send, each a list of frames. Memory of the block is not copied."""
        if block is None:
            yield [self._header(message)]
            return
        offset = 0
        for piece in _pieces_of(block):
            yield [self._header(BlockPiece(offset) if offset else message), piece]
            offset += len(piece)

    def _header(self, message: WireMessage) -> bytes:
        header = Header(self._run, self._epoch, self._serial, message)
        data = _ENCODER.encode(header)
        if len(data) > HEADER_BYTES:
            raise WireError(f"{_kind(message)} is too long to be sent")
        self._serial += 1
        return data


class Incoming:
    """The other direction: checks what comes and puts blocks together."""

    __slots__ = (
        "_body",
        "_epoch",
        "_expect",
        "_filled",
        "_finite",
        "_head",
        "_is_finite",
        "_parts",
        "_run",
        "_serial",
    )

    def __init__(
        self,
        run: int,
        epoch: int,
        expect: Expect,
        is_finite: Callable[[torch.Tensor], bool] | None = None,
    ) -> None:
        """is_finite: look at large blocks as they come, while a piece is still in the cache."""
        self._run, self._epoch, self._expect = run, epoch, expect
        self._is_finite, self._finite = is_finite, True
        self._serial = 0
        self._body: WireMessage | None = None  # of the block that is being put together
        self._head: BlockHead | None = None
        self._parts: list[torch.Tensor] = []
        self._filled = 0

    def take(self, frames: Sequence[Frame]) -> tuple[WireMessage, Block | None] | None:
        """A whole message, or None while pieces of its block are missing.

        Raises WireError; then nothing has changed, and the message is as if never sent.
        """
        if not 1 <= len(frames) <= 2:
            raise WireError(f"a message has 1 or 2 frames, not {len(frames)}")
        message = self._open(frames[0])
        piece = memoryview(frames[1]).cast("B") if len(frames) == 2 else None
        if isinstance(message, BlockPiece):
            return self._continue(message, piece)
        if self._body is not None:
            raise WireError(f"{_kind(message)} came in the middle of a block")
        head: BlockHead | None = getattr(message, "block", None)
        if head is None:
            if piece is not None:
                raise WireError(f"{_kind(message)} came with bytes that it does not announce")
            self._serial += 1
            return message, None
        if piece is None:
            raise WireError(f"{_kind(message)} announces a block and has none")
        self._require_expected(message, head)
        if len(piece) != min(head.nbytes, PIECE_BYTES):
            raise WireError(f"{_kind(message)}: the first piece has {len(piece)} bytes")
        self._begin(message, head)
        return self._fill(piece)

    def _open(self, frame: Frame) -> WireMessage:
        """Return the wire message if it is the one that is due."""
        if len(memoryview(frame)) > HEADER_BYTES:
            raise WireError("the header is too long")
        header = _decode(_ENVELOPES, frame)
        if header.run != self._run:
            raise WireError("it belongs to another run")
        if header.epoch != self._epoch:
            raise WireError(f"it is of membership epoch {header.epoch}, this is {self._epoch}")
        if header.serial != self._serial:
            raise WireError(
                f"it has serial number {header.serial} where {self._serial} was due: "
                "lost, repeated or played again"
            )
        return _decode(_MESSAGES, header.message)

    def _require_expected(self, message: WireMessage, head: BlockHead) -> None:
        if head.dtype != PHANTOM and head.dtype not in DTYPES:
            raise WireError(f"{_kind(message)}: dtype {head.dtype!r} is not known")
        expected = self._expect(message)
        if expected is None:
            raise WireError(f"{_kind(message)} may not come with a block here")
        if (head.dtype, head.elements) != expected:
            raise WireError(
                f"{_kind(message)} has {head.elements} elements of {head.dtype} "
                f"where {expected[1]} of {expected[0]} were due"
            )

    def _continue(
        self, more: BlockPiece, piece: memoryview | None
    ) -> tuple[WireMessage, Block | None] | None:
        if self._body is None or piece is None:
            raise WireError("a piece came without the block it belongs to")
        rest = self._data_bytes() - self._filled
        if more.offset != self._filled or len(piece) != min(rest, PIECE_BYTES):
            raise WireError(
                f"a piece of {len(piece)} bytes at {more.offset} does not continue "
                f"a block of which {self._filled} bytes are there and {rest} are due"
            )
        return self._fill(piece)

    def _begin(self, message: WireMessage, head: BlockHead) -> None:
        self._body, self._head, self._filled = message, head, 0
        self._parts, self._finite = [], True

    def _data_bytes(self) -> int:
        assert self._head is not None
        return self._head.nbytes

    def _fill(self, piece: memoryview) -> tuple[WireMessage, Block | None] | None:
        message, head = self._body, self._head
        assert message is not None
        assert head is not None
        self._serial += 1
        self._filled += len(piece)
        if head.dtype == PHANTOM:
            if self._filled < head.nbytes:
                return None
            self._body = self._head = None
            return message, Phantom(head.nbytes)
        dtype = DTYPES[head.dtype]
        if len(piece) == head.nbytes:  # all of it: a copy leaves the network's buffer free
            self._body = self._head = None
            return message, _tensor_of(memoryview(bytearray(piece)), dtype)
        part = _tensor_of(_computable(piece, dtype), dtype)
        self._parts.append(part)
        if self._is_finite is not None:
            self._finite = self._finite and self._is_finite(part)
        if self._filled < head.nbytes:
            return None
        parts, self._parts = self._parts, []
        self._body = self._head = None
        return message, Pieces(parts, None if self._is_finite is None else self._finite)


def _pieces_of(block: Block) -> Iterator[memoryview]:
    """Its bytes, PIECE_BYTES at a time but for the last; at least one, which may be empty."""
    if isinstance(block, Pieces) and _cut_alike(block.parts):
        yield from map(_bytes_of, block.parts)
        return
    block = whole(block)
    size = block.nbytes
    data = None if isinstance(block, Phantom) else _bytes_of(block)
    for offset in range(0, max(size, 1), PIECE_BYTES):
        end = min(offset + PIECE_BYTES, size)
        yield _ZEROS[: end - offset] if data is None else data[offset:end]


def _cut_alike(parts: Sequence[torch.Tensor]) -> bool:
    """Are these just the pieces that travel?"""
    *first, last = parts
    return last.nbytes <= PIECE_BYTES and all(part.nbytes == PIECE_BYTES for part in first)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: Frame) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError(f"the header cannot be decoded: {error}"[:_REASON]) from None


def _computable(piece: memoryview, dtype: torch.dtype) -> memoryview:
    """The same, in the memory it came in where that can be computed with."""
    if piece.readonly or np.frombuffer(piece, np.uint8).ctypes.data % dtype.itemsize:
        return memoryview(bytearray(piece))
    return piece


def _tensor_of(piece: memoryview, dtype: torch.dtype) -> torch.Tensor:
    if not len(piece):
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(piece, dtype=dtype)


def _numpy_bytes(tensor: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return tensor.view(torch.uint8).numpy()


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor that is contiguous and 1-D."""
    return memoryview(_numpy_bytes(tensor.detach()))  # type: ignore[arg-type]


def _kind(message: WireMessage) -> str:
    return type(message).__name__
