"""Which server owns which part of the flat parameter vector."""

from __future__ import annotations

from itertools import pairwise

from outpace.errors import ConfigError


def even_slices(parameters: int, servers: int) -> list[slice]:
    """Contiguous slices whose sizes differ by at most one element (EPS, FluentPS III-B).

    Raises ConfigError if a server would own nothing.
    """
    if servers > parameters:
        raise ConfigError(
            f"servers: {servers} servers cannot share {parameters} parameters; "
            f"use at most {parameters}"
        )
    bounds = [server * parameters // servers for server in range(servers + 1)]
    return [slice(low, high) for low, high in pairwise(bounds)]
