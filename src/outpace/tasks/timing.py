"""A task without gradients, where only sizes and times matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import torch
from pydantic import Field

from outpace.blocks.block import Block, Phantom
from outpace.support.checks import Count, check_ranges, require
from outpace.tasks.task import Evaluation, Workload

MOST_PARAMETERS: Final = 10**15


@dataclass(frozen=True, slots=True)
class Timing:
    """A task without gradients: messages have the size of parameters of four bytes each.

    Attributes:
        parameters: number of parameters, by default 1,000,000.
        layers: the number of parameters in each tensor, in place of `parameters`.
    """

    kind: Literal["timing"] = "timing"
    parameters: Annotated[int, Field(ge=1, le=MOST_PARAMETERS)] | None = None
    layers: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        alone = self.parameters is None or self.layers is None
        require(alone, "parameters", "left out where layers are given", self.parameters)
        total = sum(self.layers or ())
        require(total <= MOST_PARAMETERS, "layers", "at most 1e15 parameters in all", total)

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        return TimingWorkload(self.layers or [self.parameters or 1_000_000])


class TimingWorkload:
    """Layers of parameters of four bytes each, which are sent but have no values."""

    has_accuracy = False
    samples = None
    model = None
    layout = ""

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.size = sum(layers)
        self._blocks = [Phantom(4 * self.size)]

    def cut(self, slices: Sequence[slice]) -> None:
        self._blocks = [Phantom(4 * (part.stop - part.start)) for part in slices]

    def initial_parameters(self) -> list[Block]:
        return list(self._blocks)

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[None, Sequence[Block]]:
        return None, self._blocks

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        return Evaluation()

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        return {}
