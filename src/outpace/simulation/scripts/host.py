"""The parts of a run that the process of a virtual worker's script needs (`scripts.process`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from outpace.blocks.block import Value
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.record.checkpoints import Part as SavedFile
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.messages import Joined
from outpace.simulation.scripts.shared_memory import CallMemory


class Host(Protocol):
    """The run that the scripts take part in, as their processes need it."""

    def logged(self, worker: int, values: Mapping[str, float]) -> None:
        """Keep what a script logs now."""

    def warned(self, text: str) -> None:
        """Warn the user, once if several scripts do."""

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return the present state of the optimizer that takes this worker's steps, by block."""

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Replace the state of the optimizer, by number of the parameter."""

    def script_saved(self, worker: int, saved: SavedFile | str) -> None:
        """Take the file of what a script keeps, or why it could not be written."""

    def parameters_set(self, worker: int, given: Value, now: torch.Tensor) -> None:
        """Take parameters that a script has set itself in its own model.

        Args:
            given: those that the model was given last, with averaged model buffers.
            now: those in the model; shape (parameters,).
        """

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        """Let a worker join a collective of its script."""

    async def result(self, worker: int, number: int) -> Part | None:
        """Wait for the end of a collective; return True if the worker has outputs of it.

        None: another worker has come to the end of the run and never joins it.
        """
