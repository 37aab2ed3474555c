"""A gradient that was asked for, and who computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch

from outpace.deferred import Deferred
from outpace.messages import Block
from outpace.units import Time

Outcome: TypeAlias = tuple[float | None, Sequence[Block]]  # loss, gradient
Told: TypeAlias = Callable[[int, int, float | None], None]  # worker, iteration, loss


class Executor(Protocol):
    """Computes gradients: later, elsewhere, several at once, or never."""

    def expect(self, job: Job) -> None:
        """It may be wanted, at the virtual time `job.due` or later. It may be begun with.

        Only weak references to it may be kept: nobody can want what nobody refers to.
        """

    def result(self, job: Job) -> Outcome:
        """It is wanted now. Raises RunError if the task raises."""

    def close(self) -> None:
        """Stop whatever runs. Idempotent."""

    def describe(self) -> dict[str, Any]:
        """For the summary: its kind, and what else is worth knowing."""


class Job:
    """The gradient of a worker's iteration. Its blocks are computed when the first is read."""

    __slots__ = (
        "__weakref__", "_executor", "_gradient", "_told", "begun", "due", "iteration", "outcome",
        "parameters", "worker",
    )  # fmt: skip

    def __init__(
        self, executor: Executor, told: Told, parameters: Sequence[torch.Tensor], worker: int,
        iteration: int, due: Time,
    ) -> None:  # fmt: skip
        self.parameters = parameters
        self.worker, self.iteration, self.due = worker, iteration, due
        self.begun = False  # is somebody computing it?
        self.outcome: Outcome | str | None = None  # once somebody has; a text: an error
        self._executor, self._told = executor, told
        self._gradient: list[Any] = []

    def blocks(self) -> list[Block]:
        """One for each block of the parameters."""
        return [
            Deferred(block.numel(), block.dtype, partial(self._take, place))
            for place, block in enumerate(self.parameters)
        ]

    def _take(self, place: int) -> torch.Tensor:
        if not self._gradient:
            loss, gradient = self._executor.result(self)
            self._gradient, self.outcome, self.parameters = list(gradient), None, ()
            self._told(self.worker, self.iteration, loss)
        block, self._gradient[place] = self._gradient[place], None
        assert isinstance(block, torch.Tensor)
        return block
