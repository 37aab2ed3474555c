"""The interface of a run for the processes of its scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from outpace.blocks.block import Block, Value
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.messages import Joined, Stepped
from outpace.simulation.scripts.shared_memory import CallMemory, StepGradient


class ScriptModels:
    """The models that scripts train, if the exchange of the run stores them.

    These methods do nothing: scripts that train with their own collectives store their models
    themselves, and before a run there are no models.
    """

    def gradient(
        self, worker: int, step: Stepped, flat: StepGradient | None
    ) -> Sequence[Block | None]:
        """Return the gradient of a step in blocks; None for each block if there is none."""
        raise NotImplementedError

    def note_step(self, worker: int, step: Stepped) -> None:
        """Note the data besides the gradient that a script reports at the end of a step."""

    def buffers(self, worker: int) -> torch.Tensor | None:
        """Return the averaged model buffers of a worker's own model; None: it has none."""
        return None

    def put_buffers(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Put averaged model buffers into the state of worker 0's model."""

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return the present state of the optimizer that takes this worker's steps, by block."""
        return [{}]  # the script's own optimizer has the state

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Replace the state of the optimizer, by number of the parameter."""

    def parameters_set(self, worker: int, given: Value, now: torch.Tensor) -> None:
        """Accept parameters that a script has set in its own model.

        Args:
            given: the parameters that the model was last given, with averaged model buffers.
            now: the parameters in the model; shape (parameters,).
        """


class Host:
    """The run to which the scripts belong, as their processes need it.

    Attributes:
        models: what the scripts train.
    """

    models: ScriptModels

    def logged(self, worker: int, values: Mapping[str, float]) -> None:
        """Record what a script logs now."""

    def warned(self, text: str) -> None:
        """Warn the user; once if several scripts give the same warning."""

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        """Let a worker join a collective of its script."""

    async def result(self, worker: int, number: int) -> Part | None:
        """Wait for the end of a collective; return True if the worker has outputs of it.

        None: another worker is at the end of the run and never joins it.
        """
        raise NotImplementedError
