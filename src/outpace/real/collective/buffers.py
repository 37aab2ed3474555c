"""Buffers of numbers that are added up among workers, and what comes out of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import torch

from outpace.blocks.block import Block, Phantom, Value, parts
from outpace.blocks.pieces import Pieces
from outpace.blocks.sums import all_finite

_AT_ONCE: Final = 1 << 21  # elements that are written before they are sent


class AccumulatedInBuffer:
    """A sum in one of two buffers that take turns. Implements `AccumulatedGradient`."""

    def __init__(self, like: torch.Tensor, elements: int) -> None:
        self._new = partial(like.new_empty, elements)
        self._buffers: list[torch.Tensor] = []
        self.count = 0

    def add(self, gradient: Block) -> None:
        if not self._buffers:
            self._buffers = [self._new(), self._new()]
        places = split_like(self._buffers[0], parts(gradient))
        if self.count:
            torch._foreach_add_(places, list(parts(gradient)))
        else:
            torch._foreach_copy_(places, list(parts(gradient)))
        self.count += 1

    def take(self) -> tuple[Block, int]:
        full, other = self._buffers
        self._buffers = [other, full]  # which is given back when the next is taken
        count, self.count = self.count, 0
        return full, count


class PhantomSum:
    """Of what nobody computes with. Implements `BlockSum`."""

    def __init__(self, nbytes: int, count: int) -> None:
        self._block, self.count = Phantom(nbytes), count

    def add(self, worker: int, gradient: Value) -> None:
        raise AssertionError("it is complete")

    def total(self) -> Value:
        return self._block

    def mean(self) -> Value:
        return self._block


class WireBuffer:
    """What travels: the values, perhaps of two dtypes, and the entries behind them."""

    def __init__(self, buffers: Sequence[torch.Tensor], elements: int) -> None:
        self.buffers = buffers
        self.is_summed = False  # does it hold the sum already, rather than this worker's part?
        rest = elements
        self.values = []  # views
        for buffer in buffers:
            self.values.append(buffer[:rest])
            rest -= len(self.values[-1])
        self.numbers = buffers[-1][len(self.values[-1]) :]
        self._pieces = [piece for each in self.values for piece in torch.split(each, _AT_ONCE)]
        # The last is sent with the entries.
        self.last = buffers[-1][len(self.values[-1]) - len(self._pieces[-1]) :]
        self.is_finite = True  # what was written
        self._intact = 0

    @property
    def is_intact(self) -> bool:
        """Is it as it was when this was set? Scripts see views of it as their gradients."""
        return self.buffers[0]._version == self._intact

    @is_intact.setter
    def is_intact(self, _: bool) -> None:
        self._intact = self.buffers[0]._version

    def clear(self) -> Iterator[torch.Tensor]:
        """Write zeros. The pieces but the last, each when it is written."""
        for piece in self._pieces:
            piece.zero_()
        return iter(self._pieces[:-1])

    def write(self, value: Block, share: float) -> Iterator[torch.Tensor]:
        """The same with so much of the values, which are looked at while they travel."""
        self.is_finite = True
        if isinstance(value, Phantom):
            yield from self.clear()
            return
        tensors = deque(tensor.reshape(-1) for tensor in parts(value))
        for piece in self._pieces:
            written = list(_filled(piece, tensors, share))
            if piece is not self._pieces[-1]:
                yield piece
            self.is_finite = self.is_finite and all(map(_is_finite, written))

    def total(self, dtype: torch.dtype) -> torch.Tensor:
        """A copy of the values."""
        if len(self.values) == 1:
            return self.values[0].to(dtype, copy=True)
        return torch.cat([values.to(dtype) for values in self.values])


class WireSum:
    """Leaves the buffers as they are: somebody may need them yet. Implements `BlockSum`.

    given: by this worker; of pieces the mean comes in pieces. copy: of the sum, if there is one.
    count: how many gave something. share: what was written of each.
    """

    def __init__(
        self,
        wire: WireBuffer,
        given: Block | None,
        copy: torch.Tensor | None,
        dtype: torch.dtype,
        count: int,
        share: float,
    ) -> None:
        self._wire, self._copy, self._share = wire, copy, share
        self._given = given if isinstance(given, Pieces) else None
        self._dtype, self.count = dtype, count

    def add(self, worker: int, gradient: Value) -> None:
        raise AssertionError("it is complete")

    def total(self) -> torch.Tensor:
        assert self._share == 1, "only the mean is known"
        return self._wire.total(self._dtype) if self._copy is None else self._copy

    def mean(self) -> Value:
        if self._share == 1:
            first = self._wire.values[0]
            if self._copy is None and len(self._wire.values) == 1 and first.dtype == self._dtype:
                return torch.div(first, self.count)
            return self.total().div_(self.count)
        (values,) = self._wire.values
        missing = 1 / (self._share * self.count)
        if missing != 1:  # who did not give anything
            values = values * missing
        return Pieces(split_like(values, self._given.parts)) if self._given else values


def _filled(
    piece: torch.Tensor, tensors: deque[torch.Tensor], share: float
) -> Iterator[torch.Tensor]:
    """Fill it with so much of the next numbers of these, which are taken away: what they were."""
    while len(piece):
        source = tensors.popleft()
        fits = min(len(piece), len(source))
        part = source[:fits]
        if share == 1:
            piece[:fits].copy_(part)
        else:
            torch.mul(part, share, out=piece[:fits])
        yield part
        piece = piece[fits:]
        if fits < len(source):
            tensors.appendleft(source[fits:])


def _is_finite(part: torch.Tensor) -> bool:
    return not part.is_floating_point() or all_finite(part)


def split_like(block: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Consecutive parts of it as long as these are: views of the same shapes."""
    flat = torch.split(block, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(flat, tensors, strict=True)]
