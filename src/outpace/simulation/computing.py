"""The body of a run in virtual time, which computes its gradients.

`executors.gradients` computes those of a task, `scripts.body` lets scripts compute theirs.
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
    """How one worker computes its gradients, as its program's context needs it.

    Attributes:
        is_abortable: True if a message can end the computation that has begun.
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
        """Return how the worker's program sends messages, where `send` does so at once."""
        return send

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """Return a gradient when the time that it takes has passed."""
        await self._kernel.sleep_ns(await self.begin(parameters, iteration))
        return await self.end()

    @abstractmethod
    async def begin(self, parameters: Sequence[Block], iteration: int, share: float = 1.0) -> Time:
        """Begin to compute a gradient; return the time that it takes (ns).

        share: of that time, after which the first part of the gradient is needed.
        """

    def _duration(self, iteration: int) -> Time:
        """Return how long the iteration takes that begins to compute now."""
        return nanoseconds(self._run_time(self.worker, iteration, self._kernel.now))

    @abstractmethod
    async def gradient(self) -> Sequence[Block | None]:
        """Return the gradient, when that share of its time has passed."""

    async def end(self) -> Sequence[Block | None]:
        """Return the gradient, whose time has passed, and count it."""
        gradient = await self.gradient()
        self.has_computed()
        return gradient

    def has_computed(self) -> None:
        """Count the gradient, whose time has passed."""
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
        """Discard the gradient: its computation was ended early."""
        self._run.finished_step()


class Body(ABC):
    """Computes the gradients of a run and evaluates its model.

    Attributes:
        may_leave: True if a worker can leave the run before its last iteration.
    """

    may_leave = False

    @abstractmethod
    def start(self) -> None:
        """Begin. Nothing is started before."""

    @abstractmethod
    def computation(self, run: VirtualRun, worker: int, process: Process) -> Computation:
        """Return how a worker computes its gradients, in this process."""

    def evaluate(self, parameters: Callable[[], Sequence[Block]]) -> Evaluation | None:
        """Evaluate the model. None: a script evaluates its model itself.

        parameters: returns the present ones.
        """
        return None

    @abstractmethod
    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        """See `Engine`."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what summary.json says about the computing of gradients."""

    def used_by_script(self) -> dict[str, Any] | None:
        """See `Engine`."""
        return None

    def files_written(self) -> Mapping[int, Collection[str]]:
        """See `Engine`."""
        return {}

    def waiting(self) -> list[str]:
        """Describe what workers wait for, for the message of a deadlock."""
        return []

    def left(self, worker: int, *, is_over: bool = False) -> None:  # noqa: B027
        """Note that a worker has left the run. is_over: others may wait for it in vain."""

    def end(self) -> None:  # noqa: B027
        """Do what comes after a run that has ended well."""

    @abstractmethod
    def close(self) -> None:
        """Stop whatever computes. Idempotent."""
