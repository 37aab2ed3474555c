"""Jobs that compute gradients, the protocol of executors, and the simplest executor."""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeAlias

import torch

from outpace.blocks.block import Block, Deferred
from outpace.support.units import Time
from outpace.tasks import Workload, gradient_of

Outcome: TypeAlias = tuple[float | None, Sequence[Block]]  # the loss and the gradient
Told: TypeAlias = Callable[[int, int, float | None], None]  # worker, iteration, loss


class Executor(Protocol):
    """Computes jobs: later, in other processes, several at once, or never."""

    def expect(self, job: Job) -> None:
        """Accept a job whose result may be needed at the virtual time `job.due` or later.

        Keep only weak references to the job: a job without other references is not needed any more
        and is not computed.
        """

    def result(self, job: Job) -> Outcome:
        """Return the result of the job, which is needed now. Raises RunError if the task raises."""

    def close(self) -> None:
        """Stop the processes that compute, if any. Idempotent."""

    def describe(self) -> dict[str, Any]:
        """Return the kind of executor and its figures, for the summary."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Job:
    """The gradient of a worker's iteration, computed when its first block is read.

    told: called when the gradient has been computed.
    """

    executor: Executor
    parameters: Sequence[torch.Tensor]
    worker: int
    iteration: int
    due: Time
    told: Told
    begun: bool = field(default=False, init=False)
    # a text: the error that was raised
    outcome: Outcome | str | None = field(default=None, init=False)
    _blocks: list[Any] = field(default_factory=list, init=False)

    def compute(self, workload: Workload) -> Outcome:
        """Compute the job in this process. Raises RunError if the task raises."""
        return gradient_of(workload, self.parameters, self.worker, self.iteration)

    def blocks(self) -> list[Block]:
        """Return a deferred block for each block of the parameters."""
        return [
            Deferred(block.numel(), block.dtype, partial(self._take, place))
            for place, block in enumerate(self.parameters)
        ]

    def _take(self, place: int) -> torch.Tensor:
        if not self._blocks:
            loss, blocks = self.executor.result(self)
            self._blocks, self.outcome, self.parameters = list(blocks), None, ()
            self.told(self.worker, self.iteration, loss)
        block, self._blocks[place] = self._blocks[place], None
        assert isinstance(block, torch.Tensor)
        return block


class SerialExecutor:
    """Computes each job in this process when its result is needed: the reference."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def expect(self, job: Job) -> None:
        pass

    def result(self, job: Job) -> Outcome:
        return job.compute(self._workload)

    def close(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {"kind": "serial"}


class JobQueue:
    """Jobs that may be computed ahead, in the order of their due times. Keeps weak references."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Time, int, weakref.ref[Job]]] = []
        self._numbers = count()

    def push(self, job: Job) -> None:
        heapq.heappush(self._jobs, (job.due, next(self._numbers), weakref.ref(job)))

    def pop(self) -> Job | None:
        """Return the first needed job that is not begun, marked as begun; None if there is none."""
        while self._jobs:
            job = heapq.heappop(self._jobs)[2]()
            if job is not None and not job.begun:
                job.begun = True
                return job
        return None

    def clear(self) -> None:
        self._jobs.clear()
