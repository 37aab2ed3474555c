"""The parameters of workers without servers.

A model that all workers change by the same commits in the same order is the same for all: the
first worker to commit computes the step, the others take its result. Versions that all workers
have passed are not kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from outpace.blocks.block import Block, Value, value_of
from outpace.blocks.slicing import layers_within
from outpace.blocks.sums import ArrivalSum, PartialSum
from outpace.errors import DivergenceError
from outpace.optim import Optimizer, OptimizerState, Sgd
from outpace.sync.parameter_block import ParameterBlock, parameter_block, plus
from outpace.sync.peers.strategy import PeerStrategy

Rate: TypeAlias = Callable[[float], float]  # iteration -> learning rate


@dataclass(slots=True)
class _Version:
    value: Value
    number: int
    state: OptimizerState | None  # None: no replica needs the state
    following: _Version | None = None


@dataclass(frozen=True, slots=True)
class Replicas:
    """How replicas of a common model take steps.

    Args:
        keep_state: True if each version of the common model needs its optimizer's state.
        of: function that returns a replica of a common model.
    """

    keep_state: bool
    of: Callable[[Common], Replica]


class SharedModel:
    """The common parameters and their versions.

    Args:
        changed: called with the number of gradients in each new version.
        replicas: how replicas of the model take steps; None if the strategy has none.
    """

    def __init__(
        self,
        block: ParameterBlock,
        workers: int,
        changed: Callable[[int], None],
        replicas: Replicas | None = None,
    ) -> None:
        self._block, self._workers, self._changed = block, workers, changed
        self.replicas = replicas
        self._gradients = 0
        self.newest = self._version(0)

    def _version(self, number: int) -> _Version:
        """Return the present parameters as a version."""
        block = self._block
        keep_state = self.replicas is not None and self.replicas.keep_state
        return _Version(block.read(), number, block.optimizer_state() if keep_state else None)

    @property
    def version(self) -> int:
        """Number of commits."""
        return self.newest.number

    def new_sum(self, workers: int) -> PartialSum:
        """Return an empty sum for the gradients of this number of workers."""
        return self._block.new_sum(workers)

    def optimizer_state(self) -> OptimizerState:
        """Return a copy of the optimizer's state."""
        return self._block.optimizer_state()

    def load_optimizer_state(self, state: OptimizerState) -> None:
        """Replace the optimizer's state, before any worker has a newer version."""
        self._block.load_optimizer_state(state)
        if self.newest.state is not None:
            self.newest.state = self._block.optimizer_state()

    def state(self) -> tuple[Value, OptimizerState, int]:
        """Return the parameters, a copy of the optimizer's state and the number of gradients."""
        return self.newest.value, self.optimizer_state(), self._gradients

    def restore(
        self, parameters: Value, optimizer: OptimizerState, gradients: int, version: int
    ) -> None:
        """Replace the model by a `state` with this version, before any worker has a view of it."""
        self._block.replace(parameters)
        if optimizer:
            self._block.load_optimizer_state(optimizer)
        self._gradients = gradients
        self.newest = self._version(version)

    def commit(
        self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0
    ) -> _Version:
        """Make the next version."""
        progress = self._gradients / self._workers
        finite = self._block.update(gradient, divisor, None, progress, factor)
        self._gradients += gradients
        number = self.version + 1
        if not finite:
            raise DivergenceError(
                f"the parameters stopped being finite at update {number}; "
                "try a smaller learning rate"
            )
        made = self.newest.following = self._version(number)
        self.newest = made
        self._changed(gradients)
        return made


class Common:
    """One worker's view of a `SharedModel`. Implements `CommonParameters`."""

    def __init__(self, model: SharedModel) -> None:
        self._model, self._version = model, model.newest

    @property
    def version(self) -> int:
        """Number of commits in this view."""
        return self._version.number

    def replica(self) -> Replica:
        made = self._model.replicas
        assert made is not None, "the strategy must set `uses_replica`"
        return made.of(self)

    def read(self) -> Value:
        return self._version.value

    def optimizer_state(self) -> OptimizerState:
        """Return the state that belongs to this version, for a replica, which must copy it."""
        assert self._version.state is not None
        return self._version.state

    def commit(self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0) -> None:
        known = self._version.following
        self._version = known or self._model.commit(gradient, divisor, gradients, factor)


class Replica(ABC):
    """Implements `ReplicaParameters`."""

    takes_plain_steps: bool

    def __init__(self, common: Common) -> None:
        self._common = common
        self._value: Value | None = None  # None: the optimizer's state of the common parameters
        self._version = 0

    @property
    def version(self) -> int:
        """Number of commits in this replica, without its own steps."""
        return self._common.version if self._value is None else self._version

    def read(self) -> Value:
        return self._common.read() if self._value is None else self._value

    @abstractmethod
    def step(self, gradient: Value, iteration: int) -> None:
        """See `ReplicaParameters`."""

    def stay(self) -> None:
        self._be(self.read())

    def follow(self) -> None:
        self._value = None

    def _be(self, value: Value) -> None:
        self._version = self.version
        self._value = value


class PlainReplica(Replica):
    """A replica that takes plain steps. rate: returns the learning rate after some iterations."""

    takes_plain_steps = True

    def __init__(self, common: Common, rate: Rate) -> None:
        super().__init__(common)
        self._rate = rate

    def step(self, gradient: Value, iteration: int) -> None:
        self._be(plus(self.read(), -self._rate(iteration), gradient))


class OptimizerReplica(Replica):
    """A replica that takes the steps of a copy of the run's optimizer.

    Args:
        block: takes the steps; its parameters and its optimizer's state are replaced before.
    """

    takes_plain_steps = False

    def __init__(self, common: Common, block: ParameterBlock) -> None:
        super().__init__(common)
        self._block = block

    def step(self, gradient: Value, iteration: int) -> None:
        self.stay()
        # A step may overwrite the gradient, which the worker has also added to its sum.
        self._block.update(gradient.clone(), 1, None, iteration)
        self._value = self._block.read()

    def stay(self) -> None:
        if self._value is None:
            self._block.replace(self._common.read())
            self._block.load_optimizer_state(self._common.optimizer_state())
            self._be(self._common.read())


class AccumulatedInPlace:
    """A sum that is stored in its first gradient. Implements `AccumulatedGradient`."""

    def __init__(self) -> None:
        self._sum = ArrivalSum()

    @property
    def count(self) -> int:
        return self._sum.count

    def add(self, gradient: Block) -> None:
        self._sum.add(0, value_of(gradient))

    def parts(self) -> list[tuple[int, Value]]:
        """Return a copy of the sum, for `restore`."""
        return self._sum.parts()

    def restore(self, parts: Iterable[tuple[int, Value]], count: int) -> None:
        """Begin with a copy of the `parts` of another sum of `count` gradients."""
        self._sum.restore(parts, count)

    def take(self) -> tuple[Block, int]:
        taken, self._sum = self._sum, ArrivalSum()
        return taken.total(), taken.count


class Own:
    """One worker's own model. Implements `OwnParameters`. `stepped` is called after each step."""

    def __init__(self, block: ParameterBlock, worker: int, stepped: Callable[[], None]) -> None:
        self._block, self._worker, self._stepped = block, worker, stepped
        self.read, self.replace = block.read, block.replace

    def step(self, gradient: Value, iteration: int) -> None:
        if not self._block.update(gradient, 1, None, iteration):
            raise DivergenceError(
                f"the parameters of worker {self._worker} stopped being finite in its iteration "
                f"{iteration}; try a smaller learning rate"
            )
        self._stepped()


def average(blocks: Sequence[ParameterBlock]) -> Value:
    """Return the mean of the parameters, added up in the order of the workers."""
    total = blocks[0].new_sum(len(blocks))
    for worker, block in enumerate(blocks):
        total.add(worker, block.read().clone())
    return total.mean()


class OptimizedBlocks:
    """Makes the parameters of models that are stepped by the run's optimizer.

    Args:
        layers: number of elements of each trainable parameter.
    """

    def __init__(
        self, initial: Value, layers: Sequence[int], strategy: PeerStrategy, optimizer: Optimizer
    ) -> None:
        self.initial, self._strategy, self._optimizer = initial, strategy, optimizer
        self._layers = layers_within(slice(0, sum(layers)), layers)

    def common(self) -> ParameterBlock:
        """Return the parameters of a common model."""
        return self._new(self._strategy.common_optimizer(self._optimizer))

    def own(self, worker: int) -> ParameterBlock:
        """Return the parameters of the model that this worker alone changes."""
        return self._new(self._optimizer)

    def replicas(self) -> Replicas | None:
        """Return how replicas take steps; None if the strategy has none."""
        if not self._strategy.uses_replica:
            return None
        if isinstance(self._optimizer, Sgd):
            return Replicas(False, partial(PlainReplica, rate=self._optimizer.rate))
        return Replicas(True, lambda common: OptimizerReplica(common, self._new(self._optimizer)))

    def _new(self, optimizer: Optimizer) -> ParameterBlock:
        return parameter_block(self.initial, optimizer, layers=self._layers)
