"""The trainer for the task of a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from outpace.blocks.block import Block
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import Initialize
from outpace.real.net.sparse_log import SparseLog
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.node.peer import PeerWorker
from outpace.real.node.task_peer_models import TaskModels
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import WorkerProcess
from outpace.sync.programs.context import Stopped
from outpace.tasks import Workload, gradient_of
from outpace.tasks.abort_points import AbortPoints


class TaskTrainer:
    """Computes gradients of a task. Implements `Trainer`."""

    def __init__(self, process: WorkerProcess, experiment: Experiment, workload: Workload) -> None:
        self._process, self._workload = process, workload
        self.layers = list(workload.layers)
        self.layout = f"parameters of {', '.join(map(str, workload.layers))} elements"
        self._last = math.inf if experiment.stop.iterations is None else experiment.stop.iterations
        self._refuse = experiment.non_finite == "refuse"
        self._log = SparseLog(process.notice)
        self._abort_points = AbortPoints(workload.model)

    def read_buffers(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def load_buffers(self, data: torch.Tensor) -> None:
        raise AssertionError("a task has no model buffers to share")

    def must_stop(self, iteration: int) -> bool:
        return iteration >= self._last

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._workload.cut(slices)
        return self._workload.initial_parameters()

    def initialize(self, server: int, block: Block) -> Initialize:
        return Initialize("", [], [], head_of(block))

    def settings(self) -> None:
        return None

    async def gradient(
        self,
        parameters: Sequence[Block],
        iteration: int,
        must_end: Callable[[], bool] | None = None,
    ) -> Sequence[Block | None] | Stopped:
        """See `Trainer`.

        Raises:
            DivergenceError: if a gradient is not finite, unless such gradients are refused.
        """
        if must_end is None:
            return self._gradient_at(parameters, iteration)
        with self._abort_points.stopping_at(must_end) as computation:
            gradient = self._gradient_at(parameters, iteration)
        return Stopped(computation.share) if computation.stopped else gradient

    def _gradient_at(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        process = self._process
        loss, gradient = gradient_of(self._workload, parameters, process.worker, iteration)
        if (loss is None or math.isfinite(loss)) and all(map(_is_finite, gradient)):
            if loss is not None:
                process.recorder.batch_loss(loss)
            return gradient
        if not self._refuse:
            raise DivergenceError(
                f"the loss or gradient of worker {process.worker} is not finite in its iteration "
                f"{iteration}; try a smaller learning rate"
            )
        self._log.note(
            f"a loss or gradient of {process.name} is not finite: it is not pushed",
            first=f" (iteration {iteration})",
        )
        return [None] * len(gradient)


def _is_finite(block: Block) -> bool:
    return not isinstance(block, Gradient) or all_finite(block)


def run_task(link: CoordinatorLink, number: int, experiment: Experiment) -> None:
    """Train a configuration's task as worker `number`; report errors to the coordinator."""
    try:
        workload = experiment.task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        )
    except Exception as error:
        report_failure(link, error)
        return
    if experiment.peers is None:
        served = ServedWorker(link, number, experiment)
        served.run(served.work(TaskTrainer(served, experiment, workload)))
    else:
        peer = PeerWorker(link, number, experiment)
        trainer = TaskTrainer(peer, experiment, workload)
        peer.run(peer.work(TaskModels(peer, experiment, trainer)))
