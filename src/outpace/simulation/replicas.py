"""The parameters of workers without servers.

What all change alike by the same commits in the same order is the same for all: whoever
commits first computes the step, the others follow. Versions that everybody has passed are
not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.blocks import ParameterBlock, copy_of
from outpace.errors import DivergenceError
from outpace.messages import Value


class _Version:
    __slots__ = ("following", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.following: _Version | None = None


class SharedModel:
    """The common parameters. changed: told how many gradients a new version has in it."""

    def __init__(self, block: ParameterBlock, workers: int, changed: Callable[[int], None]) -> None:
        self._block, self._workers, self._changed = block, workers, changed
        self._gradients = 0
        self.version = 0
        self.newest = _Version(block.read())

    def commit(self, gradient: Value, divisor: float, gradients: int) -> _Version:
        """Make the next version."""
        self._block.update(gradient, divisor, None, self._gradients / self._workers)
        self._gradients += gradients
        self.version += 1
        if not self._block.is_finite():
            raise DivergenceError(
                f"the parameters stopped being finite at update {self.version}; "
                "try a smaller learning rate"
            )
        made = self.newest.following = _Version(self._block.read())
        self.newest = made
        self._changed(gradients)
        return made


class Replica:
    """One worker's view of it. Implements `CommonParameters`."""

    def __init__(self, model: SharedModel) -> None:
        self._model, self._version = model, model.newest

    def read(self) -> Value:
        return self._version.value

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        known = self._version.following
        self._version = known or self._model.commit(gradient, divisor, gradients)


class Own:
    """One worker's own. Implements `OwnParameters`. stepped: told of each step."""

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


def average_both(one: ParameterBlock, other: ParameterBlock) -> None:
    """Have both go on from the mean of the two."""
    mean = average([one, other])
    one.replace(mean)
    other.replace(mean)


def average(blocks: Sequence[ParameterBlock]) -> Value:
    """The mean of their parameters, added up in the order of the workers."""
    total = blocks[0].new_sum(len(blocks))
    for worker, block in enumerate(blocks):
        total.add(worker, copy_of(block.read()))
    return total.mean()
