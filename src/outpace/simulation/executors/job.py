"""What is to be computed from parameters, a gradient or an evaluation, and who does it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import torch

from outpace.blocks.block import Block
from outpace.blocks.deferred import Deferred
from outpace.support.units import Time
from outpace.tasks import Evaluation, Workload, evaluation_of, gradient_of

Gradient: TypeAlias = tuple[float | None, Sequence[Block]]  # with its loss
Outcome: TypeAlias = Gradient | Evaluation
Told: TypeAlias = Callable[[int, int, float | None], None]  # worker, iteration, loss

EVALUATION: Final = -1  # in place of a worker


class Executor(Protocol):
    """Computes jobs: later, elsewhere, several at once, or never."""

    @property
    def beside(self) -> bool:
        """Does it compute while this process does something else?"""

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


class Job(ABC):
    """A function of parameters, a worker and an iteration."""

    __slots__ = (
        "__weakref__",
        "begun",
        "due",
        "executor",
        "iteration",
        "outcome",
        "parameters",
        "worker",
    )

    def __init__(
        self,
        executor: Executor,
        parameters: Sequence[torch.Tensor],
        worker: int,
        iteration: int,
        due: Time,
    ) -> None:
        self.executor, self.parameters = executor, parameters
        self.worker, self.iteration, self.due = worker, iteration, due
        self.begun = False  # is somebody computing it?
        self.outcome: Outcome | str | None = None  # once somebody has; a text: an error

    @abstractmethod
    def compute(self, workload: Workload) -> Outcome:
        """Here and now. Raises RunError if the task raises."""


class GradientJob(Job):
    """The gradient of a worker's iteration. It is computed when its first block is read."""

    __slots__ = ("_blocks", "_told")

    def __init__(
        self,
        executor: Executor,
        told: Told,
        parameters: Sequence[torch.Tensor],
        worker: int,
        iteration: int,
        due: Time,
    ) -> None:
        super().__init__(executor, parameters, worker, iteration, due)
        self._told = told
        self._blocks: list[Any] = []

    def compute(self, workload: Workload) -> Gradient:
        return gradient_of(workload, self.parameters, self.worker, self.iteration)

    def blocks(self) -> list[Block]:
        """One for each block of the parameters."""
        return [
            Deferred(block.numel(), block.dtype, partial(self._take, place))
            for place, block in enumerate(self.parameters)
        ]

    def _take(self, place: int) -> torch.Tensor:
        if not self._blocks:
            outcome = self.executor.result(self)
            assert not isinstance(outcome, Evaluation)
            loss, blocks = outcome
            self._blocks, self.outcome, self.parameters = list(blocks), None, ()
            self._told(self.worker, self.iteration, loss)
        block, self._blocks[place] = self._blocks[place], None
        assert isinstance(block, torch.Tensor)
        return block


class EvaluationJob(Job):
    """What parameters are worth, on at most so many samples (0: all)."""

    __slots__ = ()

    def __init__(
        self, executor: Executor, parameters: Sequence[torch.Tensor], samples: int | None, due: Time
    ) -> None:
        super().__init__(executor, parameters, EVALUATION, samples or 0, due)

    def compute(self, workload: Workload) -> Evaluation:
        return evaluation_of(workload, self.parameters, self.iteration or None)

    def value(self) -> Evaluation:
        """Wait for it. Raises RunError if the task raises."""
        outcome = self.executor.result(self)
        assert isinstance(outcome, Evaluation)
        return outcome
