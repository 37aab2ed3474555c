"""The gradients of a task, computed by the executor that the configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from outpace.blocks.block import Block, whole
from outpace.config import executors as settings
from outpace.config.experiment import Experiment
from outpace.simulation.computing import Body, Computation
from outpace.simulation.executors.auto import AutoExecutor
from outpace.simulation.executors.batched import BatchedExecutor
from outpace.simulation.executors.job import Executor, Job, SerialExecutor, Told
from outpace.simulation.executors.processes import ProcessExecutor
from outpace.simulation.life import Process
from outpace.support.units import Time
from outpace.tasks import Evaluation, Workload, evaluation_of

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class Gradients(Body):
    """Accepts orders for gradients.

    `told` is called after each computed gradient. `share` returns the completed share of the run,
    in [0, 1]. Raises ConfigError if the configuration has batches and the task cannot be batched.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: Workload,
        told: Told,
        share: Callable[[], float],
    ) -> None:
        self._experiment, self._workload = experiment, workload
        self._told, self._share = told, share
        self._initial = _tensors([whole(block) for block in workload.initial_parameters()])
        self._executor: Executor = SerialExecutor(workload)
        if self._initial and isinstance(experiment.executor, settings.Batched):
            self._executor = BatchedExecutor(
                workload, self._initial, experiment.executor.width, experiment.executor.device
            )

    def start(self) -> None:
        """Start the processes that the configuration asks for."""
        asked = self._experiment.executor
        if not self._initial:
            return
        if isinstance(asked, settings.Processes):
            self._executor = ProcessExecutor(
                self._experiment, self._workload, self._initial, asked.processes
            )
        elif isinstance(asked, settings.Auto):
            self._executor = AutoExecutor(
                self._experiment, self._workload, self._initial, self._share
            )

    def computation(self, run: VirtualRun, worker: int, process: Process) -> TaskComputation:
        return TaskComputation(self, run, worker, process)

    def submit(
        self, parameters: Sequence[Block], worker: int, iteration: int, due: Time
    ) -> Sequence[Block]:
        """Return the gradient at these parameters; its values are computed when they are read.

        due: the virtual time before which the values are not read.
        """
        if not self._initial:  # the task has only sizes: nothing to compute
            return self._workload.gradient(parameters, worker, iteration)[1]
        tensors = _tensors(parameters)  # a new list: the worker's changes as replies arrive
        job = Job(self._executor, tensors, worker, iteration, due, self._told)
        self._executor.expect(job)
        return job.blocks()

    def evaluate(self, parameters: Callable[[], Sequence[Block]]) -> Evaluation:
        return evaluation_of(self._workload, parameters(), self._experiment.evaluate.samples)

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        return self._workload.state_dict(parameters)

    def summary(self) -> dict[str, Any]:
        return {"executor": self._executor.describe()}

    def close(self) -> None:
        self._executor.close()


class TaskComputation(Computation):
    """Computes the gradients of one worker when they are read, at the end of their time."""

    def __init__(
        self, gradients: Gradients, run: VirtualRun, worker: int, process: Process
    ) -> None:
        super().__init__(run, worker, process)
        self._submit = gradients.submit
        self._gradient: Sequence[Block | None] = ()  # the gradient that is being computed

    async def begin(self, parameters: Sequence[Block], iteration: int, share: float = 1.0) -> Time:
        self._process.begin(iteration)
        duration = self._duration(iteration)
        due = self._kernel.now + round(share * duration)
        self._gradient = self._submit(parameters, self.worker, iteration, due)
        return duration

    async def gradient(self) -> Sequence[Block | None]:
        gradient, self._gradient = self._gradient, ()
        return gradient

    def cut_off(self) -> None:
        self._gradient = ()  # nothing refers to the gradient any more, so it is never computed
        super().cut_off()


def _tensors(blocks: Sequence[Block]) -> list[torch.Tensor]:
    return [block for block in blocks if isinstance(block, torch.Tensor)]
