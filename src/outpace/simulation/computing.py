"""The body of a run in virtual time: it computes the gradients.

`executors.gradients` computes the gradients of a task; `scripts.body` lets scripts compute
gradients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from outpace.blocks.block import Block
from outpace.record.tables import NONE
from outpace.simulation.life import Process, Send
from outpace.support.units import Time, nanoseconds
from outpace.tasks import Evaluation

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class WorkerLeft(Exception):  # no error: a script has taken its last step
    """Ends the program of a worker that computes no more gradients."""


class Computation(ABC):
    """Computes the gradients of one worker for the context of its program.

    Attributes:
        is_abortable: True if a message can end a computation that has begun.
    """

    is_abortable = True

    def __init__(self, run: VirtualRun, worker: int, process: Process) -> None:
        self.worker = worker
        self._run, self._process, self._kernel = run, process, run.kernel
        self._run_time, self._recorder = run.run_time, run.recorder
        limit = run.experiment.stop.iterations
        self._last = math.inf if limit is None else limit

    def must_stop(self, iteration: int) -> bool:
        """True if the worker does not compute this iteration."""
        return iteration >= self._last

    def sending(self, send: Send) -> Send:
        """Return a function to send messages for the worker's program; `send` sends at once."""
        return send

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """Return a gradient after the time that it takes."""
        await self._kernel.sleep_ns(await self.begin(parameters, iteration))
        return await self.end()

    @abstractmethod
    async def begin(self, parameters: Sequence[Block], iteration: int, share: float = 1.0) -> Time:
        """Begin to compute a gradient; return the time that it takes (ns).

        share: share of that time after which the first part of the gradient is needed.
        """

    def _duration(self, iteration: int) -> Time:
        """Return the duration of the iteration whose computation begins now."""
        return nanoseconds(self._run_time(self.worker, iteration, self._kernel.now))

    @abstractmethod
    async def gradient(self) -> Sequence[Block | None]:
        """Return the gradient after that share of its time has passed."""

    async def end(self) -> Sequence[Block | None]:
        """Return the gradient after its time has passed, and count it."""
        gradient = await self.gradient()
        self.has_computed()
        return gradient

    def has_computed(self) -> None:
        """Count the gradient after its time has passed."""
        self._recorder.gradient_computed(self.worker)
        self._run.finished_step()

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_shard: int = NONE,
    ) -> None:
        """Note an iteration; see `Recorder.iteration_finished`."""
        self._recorder.iteration_finished(
            self.worker, iteration, started, computed, finished, held, last_shard
        )

    def cut_off(self) -> None:
        """Discard the gradient, because its computation was ended early."""
        self._run.finished_step()


class Body(ABC):
    """Computes the gradients of a run and evaluates its model.

    Attributes:
        may_leave: True if a worker can leave the run before its last iteration.
    """

    may_leave = False

    @abstractmethod
    def start(self) -> None:
        """Start the processes that compute, if any; nothing is started before."""

    @abstractmethod
    def computation(self, run: VirtualRun, worker: int, process: Process) -> Computation:
        """Return the object that computes a worker's gradients, for this process of the worker."""

    def evaluate(self, parameters: Callable[[], Sequence[Block]]) -> Evaluation | None:
        """Evaluate the model; returns None for a script, which evaluates its model itself.

        parameters: returns the present parameters.
        """
        return None

    @abstractmethod
    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        """See `Engine`."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return the part of summary.json about the computation of gradients."""

    def used_by_script(self) -> dict[str, Any] | None:
        """See `Engine`."""
        return None

    def files_written(self) -> Mapping[int, Collection[str]]:
        """See `Engine`."""
        return {}

    def waiting(self) -> list[str]:
        """Describe the messages that workers wait for, for the error of a deadlock."""
        return []

    def left(self, worker: int, *, is_over: bool = False) -> None:  # noqa: B027
        """Note that a worker has left. is_over: True if others may wait for it in vain."""

    def end(self) -> None:  # noqa: B027
        """Finish after the end of a successful run."""

    @abstractmethod
    def close(self) -> None:
        """Stop the processes that compute, if any. Idempotent."""
