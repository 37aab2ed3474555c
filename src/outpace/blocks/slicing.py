"""The division of the flat parameter vector among servers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate, pairwise

from outpace.errors import ConfigError


class Slicing(StrEnum):
    """How parameters are divided among the servers (FluentPS, section III-B)."""

    EVEN = "even"  # equal parts, regardless of tensors; they stay the same when servers are lost
    LAYERS = "layers"  # whole parameter tensors, equally many for each server


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
    """Return the bounds between servers: server m has things m·K // M up to (m+1)·K // M."""
    return [server * things // servers for server in range(servers + 1)]


def _between(bounds: Sequence[int]) -> list[slice]:
    return [slice(low, high) for low, high in pairwise(bounds)]
