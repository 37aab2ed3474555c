"""The parameters of a configuration's task in a worker without servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from outpace.blocks.block import Block, Phantom, Value, whole
from outpace.blocks.slicing import layers_within
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.optim import Optimizer
from outpace.real.node.peer import PeerWorker
from outpace.real.node.worker_process import Trainer
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.sync.peers.context import Parameters
from outpace.sync.peers.parameters import Common, Own, Replica, SharedModel, replica_rate


class TaskModels:
    """Keeps parameters in blocks, as servers do. Implements `PeerModels`."""

    tail = 0
    averages_in_place = False
    device = None

    def __init__(self, process: PeerWorker, experiment: Experiment, trainer: Trainer) -> None:
        self.trainer, self._process, self._optimizer = trainer, process, experiment.optimizer
        (initial,) = trainer.cut([slice(0, sum(trainer.layers))])
        self._initial = whole(initial)
        self._model: SharedModel
        self._own: Own

    def parameters(self, *, on_gpu: bool = False) -> torch.Tensor | Phantom:
        assert not on_gpu, "tasks are computed on the CPU"
        initial = self._initial
        return initial if isinstance(initial, Phantom) else initial.clone()

    def start_from(self, parameters: torch.Tensor) -> None:
        self._initial = parameters

    def prepare(self) -> None:
        process, strategy = self._process, self._process.strategy
        if strategy.has_common:
            block = self._block(strategy.common_optimizer(self._optimizer))
            rate = replica_rate(strategy, self._optimizer)
            self._model = SharedModel(block, process.workers, process.changed, rate)
        if strategy.has_own:
            self._own = Own(self._block(self._optimizer), process.worker, process.stepped)

    def common(self) -> Common:
        return Common(self._model)

    def own(self) -> Own:
        return self._own

    def change_own(self, by: torch.Tensor) -> None:
        now = whole(self._own.read())
        assert isinstance(now, torch.Tensor)
        self._own.replace(now + by)

    def refused(self) -> None:
        raise DivergenceError(
            f"the accumulated gradient of {self._process.name} is not finite; "
            "try a smaller learning rate"
        )

    def now_trained(self) -> Value:
        has_common = self._process.strategy.has_common
        return self._model.newest.value if has_common else self._own.read()

    def version_of(self, at: Parameters) -> int | None:
        return at.version if isinstance(at, Common | Replica) else None

    @contextmanager
    def computing_at(self, at: Parameters) -> Iterator[Sequence[Block]]:
        yield [at.read()]

    def _block(self, optimizer: Optimizer) -> ParameterBlock:
        """Return a block with the initial parameters."""
        layers = self.trainer.layers
        return parameter_block(
            self._initial, optimizer, layers=layers_within(slice(0, sum(layers)), layers)
        )
