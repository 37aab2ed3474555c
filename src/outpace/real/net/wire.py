"""Converts wire messages to frames and back, without any IO.

A message is a header frame (msgpack, see `messages`), in which a `BlockHead` stands for its block.
A frame with the block's first piece comes with it. The other pieces follow, each after a small
separate header. Outside of this module a message contains its block itself.

Nothing is trusted. Run, generation and serial number must be the expected ones, so frames of
another run, of a process that was replaced, and replayed frames are refused before the message
itself is decoded. A block must have the dtype and length that its receiver expects before a piece
of it is stored. Every fault raises WireError and does not change the receiver. There is no pickle,
and nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, TypeAlias

import msgspec
import torch

from outpace.blocks.block import Block
from outpace.blocks.packing import DTYPES, PHANTOM, BlockHead
from outpace.errors import ProtocolError
from outpace.real.net import (
    checkpoint_messages,
    peer_messages,
    probes,
    report_messages,
)
from outpace.real.net.block_frames import (
    PIECE_BYTES,
    Assembly,
    IsFinite,
    block_in,
    bytes_of,
    head_in,
    head_of,
    pieces_of,
)
from outpace.real.net.messages import BlockPiece, WirePart
from outpace.sync.membership.fence import Fence, Verdict
from outpace.sync.messages import Count, Index, WireMessage

HEADER_BYTES: Final = 1 << 22  # largest length of a header

Frame: TypeAlias = Any  # bytes, memoryview, or anything with the buffer protocol
# Returns (dtype, elements) of the block that may come with a message, which has the block's head;
# None: no block.
Expect: TypeAlias = Callable[[WireMessage], "tuple[str, int] | None"]
InSlot: TypeAlias = Callable[[int, int, torch.dtype, "IsFinite | None"], Block]

# Imported so that their messages are known as subclasses.
assert checkpoint_messages
assert peer_messages
assert probes
assert report_messages

# Is decoded as one of these classes.
ANY_MESSAGE: Final[Any] = reduce(or_, WireMessage.__subclasses__())


class Envelope(WirePart):
    """The first frame of every message; the message in it is not decoded yet.

    generation: generation of the sender. serial: counts the messages of one connection. slot: the
    shared memory with the message's block; None: the block comes in frames.
    """

    run: Count
    generation: Count
    serial: Count
    message: msgspec.Raw
    slot: Index | None = None


_ENCODER: Final = msgspec.msgpack.Encoder()
_ENVELOPES: Final[msgspec.msgpack.Decoder[Envelope]] = msgspec.msgpack.Decoder(Envelope)
_MESSAGES: Final[msgspec.msgpack.Decoder[WireMessage]] = msgspec.msgpack.Decoder(ANY_MESSAGE)
_REASON: Final = 200  # most characters of an error, which may quote a message


class WireError(ProtocolError):
    """Raised if a received message does not belong to this run, or is not acceptable."""


class OldGeneration(WireError):  # the name says which message was received
    """Raised if a received message is from a process that was replaced."""


class Outgoing:
    """The sending direction of a connection: numbers the messages.

    generation: generation of the sending process.
    """

    __slots__ = ("_generation", "_run", "_serial")

    def __init__(self, run: int, generation: int) -> None:
        self._run, self._generation, self._serial = run, generation, 0

    def frames(self, message: WireMessage, slot: int | None = None) -> Iterable[list[Frame]]:
        """Return the parts to send, each as a list of frames. The block is not copied.

        slot: the shared memory that contains the block; then its bytes are not sent.
        """
        field = message.block_field
        block: Block | None = getattr(message, field, None)
        if block is None:
            return ([self._header(message)],)
        message = msgspec.structs.replace(message, **{field: head_of(block)})
        if slot is not None:
            return ([self._header(message, slot)],)
        if isinstance(block, torch.Tensor) and block.nbytes <= PIECE_BYTES:
            return ([self._header(message), bytes_of(block)],)
        return self._in_pieces(message, block)

    def _in_pieces(self, message: WireMessage, block: Block) -> Iterator[list[Frame]]:
        offset = 0
        for piece in pieces_of(block):
            yield [self._header(BlockPiece(offset) if offset else message), piece]
            offset += len(piece)

    def _header(self, message: WireMessage, slot: int | None = None) -> bytes:
        # An Envelope, whose message would have to be encoded before.
        data = _ENCODER.encode((self._run, self._generation, self._serial, message, slot))
        if len(data) > HEADER_BYTES:
            raise WireError(f"{_kind(message)} is too long to be sent")
        self._serial += 1
        return data


class Incoming:
    """The receiving direction of a connection: checks the messages and puts blocks together.

    generation: generation of the accepted process. is_finite: tests large blocks piece by piece, if
    given. in_slot: returns the block in this shared memory; None: there is none.
    """

    __slots__ = (
        "_expect",
        "_fence",
        "_in_slot",
        "_is_finite",
        "_run",
        "_unfinished",
    )

    def __init__(
        self,
        run: int,
        generation: int,
        expect: Expect,
        is_finite: IsFinite | None = None,
        in_slot: InSlot | None = None,
    ) -> None:
        self._run, self._fence = run, Fence(generation)
        self._expect, self._is_finite, self._in_slot = expect, is_finite, in_slot
        # A message whose block is being put together.
        self._unfinished: tuple[WireMessage, Assembly] | None = None

    def take(self, frames: Sequence[Frame]) -> WireMessage | None:
        """Return a whole message, or None while pieces of its block are missing.

        Raises:
            WireError: if the frames are not acceptable; they then have no effect.
        """
        if not 1 <= len(frames) <= 2:
            raise WireError(f"a message has 1 or 2 frames, not {len(frames)}")
        message, slot = self._open(frames[0])
        piece = memoryview(frames[1]).cast("B") if len(frames) == 2 else None
        if isinstance(message, BlockPiece):
            return self._continue(message, piece)
        if self._unfinished is not None:
            raise WireError(f"{_kind(message)} came in the middle of a block")
        head = head_in(message)
        if head is None:
            if piece is not None or slot is not None:
                raise WireError(f"{_kind(message)} came with bytes that it does not announce")
            self._fence.take()
            return message
        if slot is not None and piece is None:
            return self._placed(message, head, slot)
        if piece is None or slot is not None:
            raise WireError(f"{_kind(message)} announces a block and has none, or two")
        self._require_expected(message, head)
        if (block := block_in(piece, head)) is not None:
            self._fence.take()
            setattr(message, message.block_field, block)
            return message
        assembly = Assembly(head, self._is_finite)
        if len(piece) != assembly.due:
            raise WireError(f"{_kind(message)}: the first piece has {len(piece)} bytes")
        return self._add(message, assembly, piece)

    def _placed(self, message: WireMessage, head: BlockHead, slot: int) -> WireMessage:
        """Return a message whose block is in shared memory."""
        self._require_expected(message, head)
        if self._in_slot is None or head.dtype == PHANTOM or not head.elements:
            raise WireError(f"{_kind(message)} must not come with a block in shared memory")
        block = self._in_slot(slot, head.elements, DTYPES[head.dtype], self._is_finite)
        self._fence.take()
        setattr(message, message.block_field, block)
        return message

    def _open(self, frame: Frame) -> tuple[WireMessage, int | None]:
        """Return the wire message, if it is the next one, and where its block is."""
        if len(memoryview(frame)) > HEADER_BYTES:
            raise WireError("the header is too long")
        try:
            header = _ENVELOPES.decode(frame)
            if header.run != self._run:
                raise WireError("it belongs to another run")
            verdict = self._fence.verdict(header.generation, header.serial)
            if verdict != "due":
                raise self._objection(header, verdict)
            return _MESSAGES.decode(header.message), header.slot
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise WireError(f"the header cannot be decoded: {error}"[:_REASON]) from None

    def _objection(self, header: Envelope, verdict: Verdict) -> WireError:
        """Return why a message is not the next one."""
        due = self._fence
        if verdict in ("old", "unknown"):
            kind = OldGeneration if verdict == "old" else WireError
            return kind(f"it is of generation {header.generation} where {due.generation} is due")
        return WireError(f"it has serial number {header.serial} where {due.serial} was due")

    def _require_expected(self, message: WireMessage, head: BlockHead) -> None:
        if head.dtype != PHANTOM and head.dtype not in DTYPES:
            raise WireError(f"{_kind(message)}: dtype {head.dtype!r} is not known")
        expected = self._expect(message)
        if expected is None:
            raise WireError(f"{_kind(message)} must not come with a block here")
        if (head.dtype, head.elements) != expected:
            raise WireError(
                f"{_kind(message)} has {head.elements} elements of {head.dtype} "
                f"where {expected[1]} of {expected[0]} were due"
            )

    def _continue(self, more: BlockPiece, piece: memoryview | None) -> WireMessage | None:
        if self._unfinished is None or piece is None:
            raise WireError("a piece came without the block it belongs to")
        message, assembly = self._unfinished
        if more.offset != assembly.filled or len(piece) != assembly.due:
            raise WireError(
                f"a piece of {len(piece)} bytes at {more.offset} does not continue a block "
                f"of which {assembly.filled} bytes are there and {assembly.due} are due next"
            )
        return self._add(message, assembly, piece)

    def _add(
        self, message: WireMessage, assembly: Assembly, piece: memoryview
    ) -> WireMessage | None:
        self._fence.take()
        block = assembly.add(piece)
        if block is None:
            self._unfinished = message, assembly
            return None
        self._unfinished = None
        setattr(message, message.block_field, block)
        return message


def _kind(message: WireMessage) -> str:
    return type(message).__name__
