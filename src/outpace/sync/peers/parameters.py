"""The parameters of workers without servers.

A model that all workers change by the same commits in the same order is the same for all: the
first worker to commit computes the step, the others take its result. Versions that all workers
have passed are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from outpace.blocks.block import Block, Value, value_of
from outpace.blocks.sums import ArrivalSum
from outpace.errors import DivergenceError
from outpace.optim import Optimizer, Sgd
from outpace.sync.parameter_block import ParameterBlock, plus
from outpace.sync.peers.strategy import PeerStrategy

Rate: TypeAlias = Callable[[float], float]  # iteration -> learning rate


def replica_rate(strategy: PeerStrategy, optimizer: Optimizer) -> Rate | None:
    """Return the learning rate of replicas' plain SGD steps; None if there are no replicas."""
    if not strategy.uses_replica:
        return None
    assert isinstance(optimizer, Sgd)  # `Experiment` refuses others
    return optimizer.rate


@dataclass(slots=True)
class _Version:
    value: Value
    number: int
    following: _Version | None = None


class SharedModel:
    """The common parameters and their versions.

    Args:
        changed: called with the number of gradients in each new version.
        replica_rate: see `replica_rate`.
    """

    def __init__(
        self,
        block: ParameterBlock,
        workers: int,
        changed: Callable[[int], None],
        replica_rate: Rate | None = None,
    ) -> None:
        self._block, self._workers, self._changed = block, workers, changed
        self.replica_rate = replica_rate
        self._gradients = 0
        self.newest = _Version(block.read(), 0)

    @property
    def version(self) -> int:
        """Number of commits."""
        return self.newest.number

    def commit(self, gradient: Value, divisor: float, gradients: int) -> _Version:
        """Make the next version."""
        self._block.update(gradient, divisor, None, self._gradients / self._workers)
        self._gradients += gradients
        number = self.version + 1
        if not self._block.is_finite():
            raise DivergenceError(
                f"the parameters stopped being finite at update {number}; "
                "try a smaller learning rate"
            )
        made = self.newest.following = _Version(self._block.read(), number)
        self.newest = made
        self._changed(gradients)
        return made


class Common:
    """One worker's view of a `SharedModel`. Implements `CommonParameters`."""

    def __init__(self, model: SharedModel) -> None:
        self._model, self._version = model, model.newest

    @property
    def version(self) -> int:
        """Number of commits in it."""
        return self._version.number

    def replica(self) -> Replica:
        rate = self._model.replica_rate
        assert rate is not None, "the strategy must set `uses_replica`"
        return Replica(self, rate)

    def read(self) -> Value:
        return self._version.value

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        known = self._version.following
        self._version = known or self._model.commit(gradient, divisor, gradients)


class Replica:
    """Implements `ReplicaParameters`."""

    def __init__(self, common: Common, rate: Rate) -> None:
        self._common, self._rate = common, rate
        self._value: Value | None = None  # None: that of the common parameters
        self._version = 0

    @property
    def version(self) -> int:
        """Number of commits in it, without its own steps."""
        return self._common.version if self._value is None else self._version

    def read(self) -> Value:
        return self._common.read() if self._value is None else self._value

    def step(self, gradient: Value, iteration: int) -> None:
        self._be(plus(self.read(), -self._rate(iteration), gradient))

    def stay(self) -> None:
        self._be(self.read())

    def follow(self) -> None:
        self._value = None

    def _be(self, value: Value) -> None:
        self._version = self.version
        self._value = value


class AccumulatedInPlace:
    """A sum whose first gradient becomes the sum. Implements `AccumulatedGradient`."""

    def __init__(self) -> None:
        self._sum = ArrivalSum()

    @property
    def count(self) -> int:
        return self._sum.count

    def add(self, gradient: Block) -> None:
        self._sum.add(0, value_of(gradient))

    def take(self) -> tuple[Block, int]:
        taken, self._sum = self._sum, ArrivalSum()
        return taken.total(), taken.count


class Own:
    """One worker's own model. Implements `OwnParameters`. `stepped` is called after each step."""

    def __init__(self, block: ParameterBlock, worker: int, stepped: Callable[[], None]) -> None:
        self._block, self._worker, self._stepped = block, worker, stepped
        self.read, self.replace = block.read, block.replace

    def step(self, gradient: Value, iteration: int) -> None:
        self._block.update(gradient, 1, None, iteration)
        if not self._block.is_finite():
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
