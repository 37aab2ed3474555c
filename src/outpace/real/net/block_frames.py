"""Cuts blocks into pieces of a megabyte for transfer, and puts them together again.

A large block stays in the memory in which its pieces were received (`Pieces` in
`outpace.blocks.block`). A piece of a megabyte is checked while it is in a cache and the next piece
is being received, and its memory is reused for the next block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from outpace.blocks.block import Block, Phantom, Pieces, whole
from outpace.blocks.narrowing import NARROW, is_narrowed
from outpace.blocks.packing import DTYPES, PHANTOM, BlockHead, dtype_name
from outpace.sync.messages import WireMessage

PIECE_BYTES: Final = 1 << 20
_ZEROS: Final = memoryview(bytes(PIECE_BYTES))

IsFinite: TypeAlias = Callable[[torch.Tensor], bool]


def head_of(block: Block) -> BlockHead:
    """Return the head of a block, which stands for it in a message."""
    if isinstance(block, Phantom):
        return BlockHead(PHANTOM, block.nbytes)
    return BlockHead(dtype_name(block.dtype), block.numel())


def head_in(message: WireMessage) -> BlockHead | None:
    """Return the head of the block that follows a message; None: there is no block."""
    head: BlockHead | None = getattr(message, message.block_field, None)
    return head


def block_elements(dtype: str, part: slice) -> int:
    """Return the elements on the wire of this slice of the parameters; a phantom counts bytes."""
    elements: int = part.stop - part.start
    return elements * (4 if dtype == PHANTOM else 1)


def value_bytes(block: tuple[str, int]) -> int:
    """Return the bytes of a block with this dtype and number of elements; 0: it has no values."""
    return 0 if block[0] == PHANTOM else BlockHead(*block).nbytes


def on_the_wire(block: tuple[str, int]) -> tuple[str, int]:
    """Return dtype and elements of such a block after its conversion (`blocks.narrowing`)."""
    dtype, elements = block
    if dtype == PHANTOM:
        return PHANTOM, elements // 2
    return (dtype_name(NARROW) if is_narrowed(DTYPES[dtype]) else dtype), elements


def pieces_of(block: Block) -> Iterator[memoryview]:
    """Yield the bytes of a block, PIECE_BYTES at a time; one empty piece if it is empty."""
    if isinstance(block, Pieces) and _cut_alike(block):
        yield from map(bytes_of, block.parts)
        return
    block = whole(block)
    size = block.nbytes
    data = None if isinstance(block, Phantom) else bytes_of(block)
    for offset in range(0, max(size, 1), PIECE_BYTES):
        end = min(offset + PIECE_BYTES, size)
        yield _ZEROS[: end - offset] if data is None else data[offset:end]


def block_in(piece: memoryview, head: BlockHead) -> Block | None:
    """Return the block in this single piece, in its own memory; None: it has several pieces."""
    if len(piece) > PIECE_BYTES or len(piece) != head.nbytes:
        return None
    if head.dtype == PHANTOM:
        return Phantom(len(piece))
    return _tensor_of(bytearray(piece), DTYPES[head.dtype])


class Assembly:
    """A block of several pieces, which arrive one by one.

    is_finite: tests each piece of a large block as it arrives, if given.
    """

    __slots__ = ("_finite", "_head", "_is_finite", "_nbytes", "_parts", "filled")

    def __init__(self, head: BlockHead, is_finite: IsFinite | None) -> None:
        self._head, self._is_finite, self._nbytes = head, is_finite, head.nbytes
        self._parts: list[torch.Tensor] = []
        self._finite = True
        self.filled = 0  # bytes

    @property
    def due(self) -> int:
        """Bytes of the next piece."""
        return min(self._nbytes - self.filled, PIECE_BYTES)

    def add(self, piece: memoryview) -> Block | None:
        """Return the block if this was its last piece."""
        head = self._head
        self.filled += len(piece)
        is_last = self.filled == self._nbytes
        if head.dtype == PHANTOM:
            return Phantom(self._nbytes) if is_last else None
        dtype = DTYPES[head.dtype]
        part = _tensor_of(_computable(piece, dtype), dtype)
        self._parts.append(part)
        if self._is_finite is not None:
            self._finite = self._finite and self._is_finite(part)
        if not is_last:
            return None
        return Pieces(self._parts, None if self._is_finite is None else self._finite)


def _cut_alike(block: Pieces) -> bool:
    """True if the parts of the block are equal to the pieces that are sent."""
    *first, last = block.parts
    return last.nbytes <= PIECE_BYTES and all(part.nbytes == PIECE_BYTES for part in first)


def _computable(piece: memoryview, dtype: torch.dtype) -> memoryview:
    """Return the piece in memory with which torch can compute; a copy only if needed."""
    if piece.readonly or np.frombuffer(piece, np.uint8).ctypes.data % dtype.itemsize:
        return memoryview(bytearray(piece))
    return piece


def _tensor_of(piece: memoryview | bytearray, dtype: torch.dtype) -> torch.Tensor:
    if not len(piece):
        return torch.empty(0, dtype=dtype, device="cpu")
    return torch.frombuffer(piece, dtype=dtype)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a tensor that is contiguous and 1-D."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    data: Any = tensor.view(torch.uint8).numpy()
    return memoryview(data)
