"""A script's model as a workload: the scripts compute its gradients, and evaluate it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from outpace.blocks.block import Block, parts
from outpace.blocks.naming import state_dict_of
from outpace.simulation.scripts.workers import ScriptWorkers
from outpace.tasks import Evaluation


class ScriptWorkload:
    """The model that scripts have attached, cut into blocks. Implements `Workload`."""

    has_accuracy = True  # a script may log it
    samples = None
    model = None

    def __init__(self, workers: ScriptWorkers) -> None:
        self.workers = workers
        self.first = workers.attached[0]
        self.layers = self.first.layers
        self.size = sum(self.layers)
        self.starts = list(accumulate(self.layers, initial=0))  # of each parameter
        self.slices = [slice(0, self.size)]

    @property
    def layout(self) -> str:
        return self.first.layout

    def cut(self, slices: Sequence[slice]) -> None:
        self.slices = list(slices)

    def initial_parameters(self) -> list[Block]:
        flat = self.first.parameters
        assert flat is not None
        return [flat[part].clone() for part in self.slices]

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float | None, Sequence[Block]]:
        raise NotImplementedError("scripts compute their gradients in their own processes")

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        raise NotImplementedError("a script evaluates its model itself")

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        flat = torch.cat([piece for block in parameters for piece in parts(block)])
        buffers = self.workers.processes[0].buffers
        return state_dict_of(self.first.layout, [flat[: self.size]], buffers)
