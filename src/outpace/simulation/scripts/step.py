"""A step of a script, with the gradient that its process hands over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from outpace.blocks.block import Block, Deferred
from outpace.simulation.scripts.messages import Stepped


class StepGradient:
    """The gradient of a step. It lies in the slot of the process until it is read.

    Args:
        slot: the gradient; overwritten in the next step.
    """

    def __init__(self, slot: torch.Tensor) -> None:
        self._slot: torch.Tensor | None = slot
        self._flat: torch.Tensor
        self.dtype, self.elements = slot.dtype, len(slot)

    def take(self) -> None:
        """Copy the gradient out of the slot, which is about to be overwritten."""
        if self._slot is not None:
            self._flat, self._slot = self._slot.clone(), None

    def blocks(self, slices: Sequence[slice]) -> list[Block]:
        """Return a block for each slice, to be read at most once."""
        return [
            Deferred(part.stop - part.start, self.dtype, partial(self._part, part))
            for part in slices
        ]

    def read(self) -> torch.Tensor:
        """Return the whole content of the slot."""
        self.take()
        return self._flat

    def _part(self, part: slice) -> torch.Tensor:
        return self.read()[part]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the script, at its end.

    gradient: None if the script has none that can be used. buffers: the slot of the vector of
    averaged model buffers, which is there in any case.
    """

    what: Stepped
    gradient: StepGradient | None
    buffers: torch.Tensor
