"""The gradients of a configuration's task, as a worker of a real run computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.real.net.sparse_log import SparseLog
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.node.trainee import Trainee
from outpace.support.units import Time
from outpace.tasks import Workload, gradient_of


class TaskGradients:
    """Of this worker."""

    def __init__(self, worker: Trainee, experiment: Experiment, workload: Workload) -> None:
        self._worker, self._workload = worker, workload
        self._last = math.inf if experiment.stop.iterations is None else experiment.stop.iterations
        self._refuse = experiment.non_finite == "refuse"
        self._log = SparseLog(worker.notice)
        law = experiment.compute
        self._run_time = law and law.run_time(
            experiment.seed, experiment.workers, experiment.stop.iterations
        )

    @property
    def layout(self) -> str:
        """Of the parameters: see `Trainee`."""
        return f"parameters of {', '.join(map(str, self._workload.layers))} elements"

    def is_over(self, iteration: int) -> bool:
        """Is there no such iteration?"""
        return iteration >= self._last

    def drawn_s(self, iteration: int, started: Time) -> float:
        """How long it shall take at least, as the configuration's law says."""
        return self._run_time(self._worker.worker, iteration, started) if self._run_time else 0.0

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """The gradient at these parameters, after the time it shall take; None: refused."""
        worker = self._worker
        started = worker.now
        drawn_s = self.drawn_s(iteration, started)
        gradient = self.at(parameters, iteration)
        await worker.stretch(started, drawn_s)
        worker.recorder.gradient_computed(worker.worker)
        return gradient

    def at(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """The gradient itself. Raises DivergenceError if it is not finite and that is not to be
        refused."""
        number = self._worker.worker
        loss, gradient = gradient_of(self._workload, parameters, number, iteration)
        if _is_finite(loss, gradient):
            if loss is not None:
                self._worker.recorder.batch_loss(loss)
            return gradient
        what = f"the loss or gradient of worker {number} is not finite in its iteration {iteration}"
        if not self._refuse:
            raise DivergenceError(f"{what}; try a smaller learning rate")
        self._log.note(
            f"a loss or gradient of {self._worker.name} is not finite: it is not pushed",
            first=f" (iteration {iteration})",
        )
        return [None] * len(gradient)


def _is_finite(loss: float | None, gradient: Sequence[Block]) -> bool:
    """Is all of it?"""
    return (loss is None or math.isfinite(loss)) and all(
        not isinstance(block, Gradient) or all_finite(block) for block in gradient
    )


def task_of(link: CoordinatorLink, experiment: Experiment) -> Workload | None:
    """What a worker trains; None, after the coordinator was told why, if it cannot be made."""
    try:
        return experiment.task.workload(experiment.workers, experiment.batch_size, experiment.seed)
    except Exception as error:
        report_failure(link, error)
        return None
