"""A worker that trains the task of a configuration: trainer and, without servers, models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from outpace.blocks.block import Block, Phantom, Value, whole
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.optim import OptimizerState
from outpace.real.collective.buffers import Digests
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.node.peer import PeerWorker
from outpace.real.node.peer_models import PeerModels
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import MustEnd, Trainer, WorkerProcess
from outpace.real.node.worker_saver import WorkerSaver
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.checkpoint.workers import restore_own
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.peers.context import Parameters
from outpace.sync.peers.parameters import Common, OptimizedBlocks, Own, Replica, SharedModel
from outpace.sync.programs.context import SendPart, Stopped
from outpace.tasks import Workload, gradient_of
from outpace.tasks.abort_points import AbortPoints
from outpace.tasks.guarded import errors_named
from outpace.tasks.supervised import SupervisedWorkload


class TaskTrainer(Trainer):
    """Computes gradients of a task."""

    def __init__(self, process: WorkerProcess, experiment: Experiment, workload: Workload) -> None:
        self._process, self._workload = process, workload
        self.layers = list(workload.layers)
        self.layout = f"parameters of {', '.join(map(str, workload.layers))} elements"
        self._abort_points = AbortPoints(workload.model)

    def load_buffers(self, data: torch.Tensor) -> None:
        raise AssertionError("a task has no model buffers to share")

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._workload.cut(slices)
        return self._workload.initial_parameters()

    async def gradient(
        self, parameters: Sequence[Block], iteration: int, must_end: MustEnd | None = None
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

    async def gradient_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> Sequence[Block | None]:
        """See `Trainer`.

        Raises:
            DivergenceError: if a part is not finite.
        """
        workload, process = self._workload, self._process
        if not isinstance(workload, SupervisedWorkload):  # there is no backward pass
            return self._gradient_at(parameters, iteration)

        def send_finite(server: int, part: torch.Tensor) -> None:
            if not all_finite(part):
                process.refuse_gradient("loss or gradient", iteration)
            send(server, part)

        with errors_named(process.worker, iteration):
            loss = workload.forward(parameters, process.worker, iteration)
            value = loss.item()
        if not math.isfinite(value):
            process.refuse_gradient("loss or gradient", iteration)
        process.recorder.batch_loss(value)
        with errors_named(process.worker, iteration):
            workload.backward(loss, send_finite)
        return []

    def _gradient_at(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        process = self._process
        loss, gradient = gradient_of(self._workload, parameters, process.worker, iteration)
        if (loss is None or math.isfinite(loss)) and all(map(_is_finite, gradient)):
            if loss is not None:
                process.recorder.batch_loss(loss)
            return gradient
        process.refuse_gradient("loss or gradient", iteration)
        return [None] * len(gradient)


def _is_finite(block: Block) -> bool:
    return not isinstance(block, Gradient) or all_finite(block)


class TaskModels(PeerModels):
    """Keeps the parameters in blocks, in the same way as servers."""

    def __init__(self, process: PeerWorker, experiment: Experiment, trainer: TaskTrainer) -> None:
        self.trainer, self._process, self._optimizer = trainer, process, experiment.optimizer
        (initial,) = trainer.cut([slice(0, sum(trainer.layers))])
        self._initial = whole(initial)
        self.shared: SharedModel | None = None
        self.own_block: ParameterBlock | None = None
        self._own: Own

    def parameters(self, *, on_gpu: bool = False) -> torch.Tensor | Phantom:
        assert not on_gpu, "tasks are computed on the CPU"
        initial = self._initial
        return initial if isinstance(initial, Phantom) else initial.clone()

    def start_from(self, parameters: torch.Tensor) -> None:
        self._initial = parameters

    def prepare(self) -> None:
        process, strategy = self._process, self._process.strategy
        blocks = OptimizedBlocks(self._initial, self.trainer.layers, strategy, self._optimizer)
        if strategy.has_common:
            self.shared = SharedModel(
                blocks.common(), process.workers, process.changed, blocks.replicas()
            )
        if strategy.has_own:
            self.own_block = blocks.own(process.worker)
            self._own = Own(self.own_block, process.worker, process.stepped)

    def common(self) -> Common:
        assert self.shared is not None
        return Common(self.shared)

    def own(self) -> Own:
        return self._own

    def change_own(self, by: torch.Tensor) -> None:
        now = whole(self._own.read())
        assert isinstance(now, torch.Tensor)
        self._own.replace(now + by)

    # -- checkpoints -----------------------------------------------------------------

    def common_state(self) -> tuple[Value, OptimizerState, int]:
        return (self._own.read(), {}, 0) if self.shared is None else self.shared.state()

    def own_state(self, *, differs: bool) -> tuple[OptimizerState, Value | None] | None:
        own = self.own_block
        return None if own is None else (own.optimizer_state(), own.read() if differs else None)

    def restore(self, state: ShardState, own: ShardState | None) -> None:
        if self.shared is not None:
            self.shared.restore(state.parameters, state.optimizer, state.pushes, state.version)
        if self.own_block is not None:
            restore_own(self.own_block, state, own)

    # ---------------------------------------------------------------------------------

    def compare(self, number: int, digests: Mapping[int, Digests]) -> None:
        """Do nothing, because a task cannot make workers differ."""

    def refused(self) -> None:
        raise DivergenceError(
            f"the accumulated gradient of {self._process.name} is not finite; "
            "try a smaller learning rate"
        )

    def now_trained(self) -> Value:
        return self._own.read() if self.shared is None else self.shared.newest.value

    def version_of(self, at: Parameters) -> int | None:
        return at.version if isinstance(at, Common | Replica) else None

    @contextmanager
    def computing_at(self, at: Parameters) -> Iterator[Sequence[Block]]:
        yield [at.read()]


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
        task = TaskTrainer(served, experiment, workload)
        served.run(served.work(task))
    else:
        peer = PeerWorker(link, number, experiment)
        trainer = TaskTrainer(peer, experiment, workload)
        models = TaskModels(peer, experiment, trainer)
        peer.saver = WorkerSaver(peer, models, experiment)
        peer.run(peer.work(models))
