"""The gradients of a run, made by the executor that the configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from outpace.blocks.block import Block, whole
from outpace.config import executors as host
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.simulation.executors.auto import AutoExecutor
from outpace.simulation.executors.batched import BatchedExecutor
from outpace.simulation.executors.job import EvaluationJob, Executor, GradientJob, Told
from outpace.simulation.executors.processes import ProcessExecutor, cores
from outpace.simulation.executors.serial import SerialExecutor
from outpace.support.units import Time
from outpace.tasks import CuttableWorkload, Evaluation, evaluation_of


class Gradients:
    """Takes orders for gradients; `told` hears of each that was computed.

    share: how much of the run is done. Raises ConfigError if the task cannot be batched
    and should be. Nothing is started before `start`.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: CuttableWorkload,
        told: Told,
        share: Callable[[], float],
    ) -> None:
        self._experiment, self._workload = experiment, workload
        self._told, self._share = told, share
        self._initial = [whole(block) for block in workload.initial_parameters()]
        self._real = all(isinstance(block, torch.Tensor) for block in self._initial)
        self._executor: Executor = SerialExecutor(workload)
        if self._real and isinstance(experiment.executor, host.Batched):
            self._executor = self._batched(experiment.executor)

    def start(self) -> None:
        """Start the processes that are asked for."""
        asked = self._experiment.executor
        if not self._real:
            return
        if isinstance(asked, host.Processes):
            self._executor = ProcessExecutor(
                self._experiment, self._workload, self._initial, asked.processes
            )
        elif isinstance(asked, host.Auto):
            self._executor = self._auto()
        elif isinstance(asked, host.Fastest):
            self._executor = self._fastest(asked)

    def submit(
        self, parameters: Sequence[Block], worker: int, iteration: int, due: Time
    ) -> Sequence[Block]:
        """The gradient at these parameters, not wanted before `due`. Values come when read."""
        if not self._real:  # sizes alone: nothing to put off
            loss, blocks = self._workload.gradient(parameters, worker, iteration)
            self._told(worker, iteration, loss)
            return blocks
        # A list of its own: the worker changes its list as replies come.
        tensors = [block for block in parameters if isinstance(block, torch.Tensor)]
        job = GradientJob(self._executor, self._told, tensors, worker, iteration, due)
        self._executor.expect(job)
        return job.blocks()

    def evaluate(
        self, parameters: Sequence[Block], samples: int | None, now: Time, *, at_once: bool
    ) -> Evaluation | EvaluationJob:
        """What these parameters are worth, on at most so many samples; or who will know it."""
        if at_once or not self._executor.beside:
            return evaluation_of(self._workload, parameters, samples)
        tensors = [block for block in parameters if isinstance(block, torch.Tensor)]
        job = EvaluationJob(self._executor, tensors, samples, now)
        self._executor.expect(job)
        return job

    def close(self) -> None:
        self._executor.close()

    def describe(self) -> dict[str, Any]:
        return self._executor.describe()

    def _auto(self) -> AutoExecutor:
        return AutoExecutor(self._experiment, self._workload, self._initial, self._share)

    def _batched(self, asked: host.Batched | host.Fastest) -> BatchedExecutor:
        device = asked.device if isinstance(asked, host.Batched) else None
        return BatchedExecutor(self._workload, self._initial, asked.width, device)

    def _fastest(self, asked: host.Fastest) -> Executor:
        try:
            batched = self._batched(asked)
        except ConfigError:  # it says itself what it cannot compute
            return self._auto()
        return batched if batched.gain(self._experiment.workers) > cores() else self._auto()
