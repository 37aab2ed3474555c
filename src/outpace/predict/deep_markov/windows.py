"""Draws the windows that the networks are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outpace.predict.deep_markov.model import UNKNOWN
from outpace.predict.deep_markov.network import Seen

_HIDDEN = 0.1  # most workers of which nothing is known, as a share
_FEWEST = 4  # a cut-off comes no earlier than after 1 / 4 of the workers


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of recorded runs, standardised, all places equally likely.

    Args:
        seen: the runs, one after the other, shapes (T, N).
        lengths: of the runs; their sum is T.
        generator: source of all draws.
    """

    seen: Seen
    lengths: Sequence[int]
    generator: torch.Generator

    def draw(self, count: int, length: int) -> tuple[Seen, Seen]:
        """Return so many windows, and what the guide sees of them, shapes (length, count, N)."""
        starts = self._starts(length)
        at = starts[self._below(len(starts), count)] + torch.arange(length)[:, None]
        told = Seen(self.seen.x[at], self.seen.cut[at])
        return told, self._cut_off(told)

    def _cut_off(self, told: Seen) -> Seen:
        """Cut off workers in three of four windows: all after a random number of arrivals.

        The number is the same through a window in two of three of these, or else drawn anew for
        each iteration. Of some workers nothing is known at all.
        """
        length, count, workers = told.x.shape
        some = count * 3 // 4
        x, cut = told.x[:, :some], told.cut[:, :some]
        least = workers // _FEWEST
        last = least + self._below(workers - least, length, some)
        same = some * 2 // 3
        last[:, :same] = last[0, :same]
        end = x.sort(-1).values.gather(-1, last[..., None])
        cut = torch.where(x > end, 1.0, cut)
        share = _HIDDEN * torch.rand(some, 1, generator=self.generator, dtype=torch.float64)
        drawn = torch.rand(some, workers, generator=self.generator, dtype=torch.float64)
        hidden = drawn < share
        x = torch.where(hidden, UNKNOWN, torch.minimum(x, end))
        cut = torch.where(hidden, 1.0, cut)
        return Seen(torch.cat([x, told.x[:, some:]], 1), torch.cat([cut, told.cut[:, some:]], 1))

    def _starts(self, length: int) -> Tensor:
        """Return the places at which a window of this length begins."""
        first, found = 0, []
        for each in self.lengths:
            found.append(torch.arange(first, first + each - length + 1))
            first += each
        return torch.cat(found)

    def _below(self, limit: int, *shape: int) -> Tensor:
        return torch.randint(0, limit, shape, generator=self.generator)
