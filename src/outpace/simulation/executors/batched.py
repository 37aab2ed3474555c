"""Computes several gradients at once by `torch.func.vmap`, those due first.

They are not bitwise equal to serial gradients: see `tasks.stacked`. The choice of the gradients
that are computed together depends only on virtual times, so a run still has one result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from outpace.errors import ConfigError, RunError
from outpace.simulation.executors.job import Job, JobQueue, Outcome
from outpace.support.user_code import brief
from outpace.tasks import Workload, gradient_of
from outpace.tasks.supervised import SupervisedWorkload

# largest difference relative to a gradient's norm; rounding in float32 gives about 1e-6
TOLERANCE: Final = 1e-4


class BatchedExecutor:
    """Computes up to `width` gradients at once.

    Raises:
        ConfigError: if this workload cannot be batched, or has different gradients in a batch.
    """

    def __init__(
        self,
        workload: Workload,
        initial: Sequence[torch.Tensor],
        width: int,
        device: str | None = None,
    ) -> None:
        self._workload, self._initial, self._width = workload, initial, width
        if not isinstance(workload, SupervisedWorkload):
            raise ConfigError("executor: only tasks with a model can be batched; use kind: auto")
        _require_device(device)
        try:
            self._stacked = workload.stacked(device)
            difference = self._difference()
        except Exception as error:  # torch.func has no list of the operations that it cannot batch
            raise ConfigError(
                f"executor: this task cannot be batched: {brief(error)}; use kind: auto"
            ) from error
        if workload.draws(initial):
            raise ConfigError(
                "executor: this task draws random numbers (dropout?), and in a batch it would "
                "draw other ones; use kind: auto"
            )
        if not difference < TOLERANCE:
            raise ConfigError(
                f"executor: batched gradients of this task differ from serial ones by "
                f"{difference:.1e} of their norm; use kind: auto"
            )
        self._queue = JobQueue()
        self._batches = self._gradients = 0

    def expect(self, job: Job) -> None:
        self._queue.push(job)

    def result(self, job: Job) -> Outcome:
        if job.outcome is None:
            job.begun = True
            jobs = [job]
            while len(jobs) < self._width and (other := self._queue.pop()) is not None:
                jobs.append(other)
            self._compute(jobs)
        assert job.outcome is not None
        if isinstance(job.outcome, str):
            raise RunError(job.outcome)
        return job.outcome

    def close(self) -> None:
        self._queue.clear()

    def describe(self) -> dict[str, Any]:
        mean = self._gradients / self._batches if self._batches else None
        return {"kind": "batched", "width": self._width, "mean_batch": mean}

    def _compute(self, jobs: Sequence[Job]) -> None:
        try:
            outcomes = self._stacked.gradients(
                [(j.parameters, j.worker, j.iteration) for j in jobs]
            )
        except Exception as error:
            text = f"the task raised in a batch of {len(jobs)} gradients: {brief(error)}"
            raise RunError(text) from error
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.outcome = outcome
        self._batches += 1
        self._gradients += len(jobs)

    # -- trials ----------------------------------------------------------------

    def _difference(self) -> float:
        """Return the largest relative difference between batched and serial gradients.

        This compares the first gradients, at equal and at unequal parameters.
        """
        first = self._initial
        second = [block.clone() for block in first]
        differences = []
        for points in ((first, first), (first, second)):
            wanted = [(blocks, 0, iteration) for iteration, blocks in enumerate(points)]
            for (blocks, worker, iteration), (_, ours) in zip(
                wanted, self._stacked.gradients(wanted), strict=True
            ):
                theirs = gradient_of(self._workload, blocks, worker, iteration)[1]
                reference = torch.cat([b for b in theirs if isinstance(b, torch.Tensor)])
                norm = torch.linalg.vector_norm(reference)
                apart = torch.linalg.vector_norm(torch.cat(ours) - reference)
                differences.append(float(apart / norm) if apart else 0.0)
        return max(differences, key=lambda d: math.inf if math.isnan(d) else d)


def _require_device(device: str | None) -> None:
    """Raise ConfigError if no tensor can be made on this device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch has no CUDA
        what = str(error).partition("\n")[0]
        raise ConfigError(
            f"executor.device: {device!r} cannot be used here: {what}; leave it out to compute "
            "where the task's model is"
        ) from None
