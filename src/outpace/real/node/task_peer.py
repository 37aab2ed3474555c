"""A worker without servers that trains the task of a configuration."""

from __future__ import annotations

import torch

from outpace.blocks.block import Block, Phantom, Value, whole
from outpace.blocks.slicing import layers_within
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.optim import Optimizer
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peer import Peer
from outpace.real.node.task import TaskGradients, task_of
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.sync.peers.context import Parameters
from outpace.sync.peers.parameters import Common, Own, Replica, SharedModel, replica_step
from outpace.tasks import Workload
from outpace.tasks.abort_points import AbortPoints


class TaskPeer(Peer):
    """Holds its parameters as a server would."""

    def __init__(
        self, link: CoordinatorLink, worker: int, experiment: Experiment, workload: Workload
    ) -> None:
        super().__init__(link, worker, experiment)
        workload.cut([slice(0, sum(workload.layers))])
        self._experiment, self._workload = experiment, workload
        self._gradients = TaskGradients(self, experiment, workload)
        # Who is sought looks around while it computes, and is not stopped.
        self._abort_points = AbortPoints(workload.model if self.strategy.exchanges else None)
        self._look_around = self.now_and_then(lambda: False)
        (initial,) = workload.initial_parameters()
        self._initial = whole(initial)
        self._model: SharedModel
        self._own: Own

    @property
    def layout(self) -> str:
        return self._gradients.layout

    @property
    def layers(self) -> list[int]:
        return list(self._workload.layers)

    def must_stop(self, iteration: int) -> bool:
        return self._gradients.is_over(iteration)

    def parameters(self) -> torch.Tensor | Phantom:
        initial = self._initial
        return initial if isinstance(initial, Phantom) else initial.clone()

    def start_from(self, parameters: torch.Tensor) -> None:
        self._initial = parameters

    def prepare(self) -> None:
        strategy, optimizer = self.strategy, self._experiment.optimizer
        if strategy.has_common:
            block = self._block(strategy.common_optimizer(optimizer))
            step = replica_step(strategy, optimizer)
            self._model = SharedModel(block, self.workers, self.changed, step)
        if strategy.has_own:
            self._own = Own(self._block(optimizer), self.worker, self.stepped)

    def common(self) -> Common:
        return Common(self._model)

    def own(self) -> Own:
        return self._own

    def refused(self) -> None:
        raise DivergenceError(
            f"the accumulated gradient of {self.name} is not finite; try a smaller learning rate"
        )

    def now_trained(self) -> Value:
        return self._model.newest.value if self.strategy.has_common else self._own.read()

    def version_of(self, at: Parameters) -> int | None:
        return at.version if isinstance(at, Common | Replica) else None

    async def gradient_at(self, at: Parameters, iteration: int) -> Block | None:
        with self._abort_points.stopping_at(self._look_around):
            (gradient,) = await self._gradients.execute([at.read()], iteration)
        return gradient

    def _block(self, optimizer: Optimizer) -> ParameterBlock:
        """That starts from the initial parameters."""
        layers = layers_within(slice(0, sum(self.layers)), self.layers)
        return parameter_block(self._initial, optimizer, layers=layers)


def task_peer(link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
    """Run worker `worker` of this configuration; what goes wrong is told to the coordinator."""
    workload = task_of(link, experiment)
    if workload is not None:
        TaskPeer(link, worker, experiment, workload).run()
