"""The division of the flat parameter vector among servers, and parts of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise

import torch

from outpace.blocks.block import Block, Phantom, Pieces, parts, value_of
from outpace.errors import ConfigError


class Slicing(StrEnum):
    """How parameters are divided among the servers (FluentPS, section III-B)."""

    EVEN = "even"  # equal parts, regardless of tensors; they stay the same when servers are lost
    LAYERS = "layers"  # whole parameter tensors, the same number for each server


def slices_of(slicing: Slicing, layers: Sequence[int], servers: int) -> list[slice]:
    """Return the servers' slices, contiguous and in order.

    Args:
        layers: The sizes of the parameter tensors.

    Raises:
        ConfigError: if a server would own nothing.
    """
    if slicing is Slicing.EVEN:
        return even_slices(sum(layers), servers)
    if servers > len(layers):
        tensors = "tensor" if len(layers) == 1 else "tensors"
        raise ConfigError(
            f"servers: {servers} servers cannot share {len(layers)} parameter {tensors}; "
            f"use at most {len(layers)}, or slicing: even"
        )
    places = [0, *accumulate(layers)]
    return _between([places[bound] for bound in _even(len(layers), servers)])


def even_slices(parameters: int, servers: int) -> list[slice]:
    """Return contiguous slices whose sizes differ by at most one element.

    Raises:
        ConfigError: if a server would own nothing.
    """
    if servers > parameters:
        noun = "parameter" if parameters == 1 else "parameters"
        raise ConfigError(
            f"servers: {servers} servers cannot share {parameters} {noun}; use at most {parameters}"
        )
    return _between(_even(parameters, servers))


def layers_within(part: slice, layers: Sequence[int]) -> list[slice]:
    """Cut a slice at the borders of parameter tensors; positions count from its start."""
    found = []
    for place, end in pairwise(accumulate(layers, initial=0)):
        low, high = max(place, part.start), min(end, part.stop)
        if low < high:
            found.append(slice(low - part.start, high - part.start))
    return found


def _even(things: int, servers: int) -> list[int]:
    """Return the bounds between servers: server m has items m·K // M up to (m+1)·K // M."""
    return [server * things // servers for server in range(servers + 1)]


def _between(bounds: Sequence[int]) -> list[slice]:
    return [slice(low, high) for low, high in pairwise(bounds)]


def recut(blocks: Sequence[Block], slices: Sequence[slice]) -> Sequence[Block]:
    """Return the blocks cut into these slices of the parameters, if their numbers differ."""
    if len(blocks) == len(slices):
        return blocks
    values = list(map(value_of, blocks))
    if isinstance(values[0], Phantom):
        size = sum(value.nbytes for value in values) // slices[-1].stop  # of an element
        return [Phantom(size * (part.stop - part.start)) for part in slices]
    flat = torch.cat([part for value in values for part in parts(value)])
    return [flat[part] for part in slices]


def consecutive(block: torch.Tensor | Pieces, lengths: Iterable[int]) -> Iterator[torch.Tensor]:
    """Yield consecutive parts of a block from its start.

    A part within one piece is a view; any other part is a copy.

    Args:
        lengths: lengths of the parts; their sum is at most the length of the block.
    """
    pieces = iter(parts(block))
    piece = next(pieces)
    for length in lengths:
        found = []
        while length > len(piece):
            if len(piece):
                found.append(piece)
            length -= len(piece)
            piece = next(pieces)
        found.append(piece[:length])
        piece = piece[length:]
        yield found[0] if len(found) == 1 else torch.cat(found)
