"""A workload without gradients, where only sizes and times matter."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outpace.blocks.block import Block, Phantom
from outpace.tasks.task import Evaluation


class TimingWorkload:
    """Layers of parameters of four bytes each, which are sent but have no values."""

    has_accuracy = False
    samples = None
    model = None

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self._blocks = [Phantom(4 * self.size)]

    @property
    def size(self) -> int:
        return sum(self.layers)

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
