"""Parameters whose steps are taken in the process of a worker's script, by its own optimizer."""

from __future__ import annotations

import torch

from outpace.blocks.block import StepSettings, Value, whole
from outpace.blocks.sums import all_finite
from outpace.optim.step import OptimizerState, mean_of
from outpace.simulation.scripts.process import ScriptProcess


class OwnStepsBlock:
    """Flat parameters of a worker; only the class of its script's optimizer knows how they change.

    Has the methods of `TensorBlock` that `ScriptBlock` uses. The state of the optimizer stays in
    the process.

    Args:
        initial: shape (parameters,).
        process: of the script; it must be in `optimizer.step()` when a step is taken.
    """

    def __init__(self, initial: torch.Tensor, process: ScriptProcess) -> None:
        self._parameters, self._process = initial.clone(), process

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> None:
        assert isinstance(gradient, torch.Tensor)
        assert settings is not None
        assert factor == 1, "strategies with replicas refuse such an optimizer"
        mean = mean_of(gradient, divisor * count)
        self._parameters = self._process.take_step(self._parameters, mean, settings.unused)

    def is_finite(self) -> bool:
        return all_finite(self._parameters)

    def read(self) -> torch.Tensor:
        return self._parameters

    def replace(self, parameters: Value) -> None:
        found = whole(parameters)
        assert isinstance(found, torch.Tensor)
        self._parameters = found

    def optimizer_state(self) -> OptimizerState:
        return {}

    def load_optimizer_state(self, state: OptimizerState) -> None:
        assert not state
