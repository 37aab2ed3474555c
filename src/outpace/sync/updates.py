"""Applies gradients to a shard's parameters and counts the versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outpace.blocks.block import StepSettings, Value
from outpace.blocks.sums import BlockSum, norm_of
from outpace.errors import DivergenceError
from outpace.support.units import Time
from outpace.sync.messages import Push
from outpace.sync.observer import Outcome, ShardObserver
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.policy import Scale


class Updates:
    """Applies gradients to a block, one by one or an iteration at a time.

    `version` is the number of updates. `progress` returns the progress of training in
    iterations.
    """

    def __init__(
        self,
        shard: int,
        block: ParameterBlock,
        workers: int,
        observer: ShardObserver,
        progress: Callable[[], float],
    ) -> None:
        self.version = 0
        self.block = block
        self._shard, self._workers, self._observer = shard, workers, observer
        self._progress = progress
        self._sums: dict[int, _IterationSum] = {}  # iteration -> gradients that await its end
        self._norm: tuple[int, float] = (-1, 0.0)  # version, norm of the parameters

    def apply(self, push: Push, gradient: Value, scale: Scale, now: Time) -> None:
        """Take a step along one gradient."""
        match scale:
            case Scale.MEAN:
                divisor = self._workers
            case Scale.STALENESS:
                divisor = max(1, self.version - push.version)
            case Scale.SUM:
                divisor = 1
        self.settle(push.worker, push.iteration, push.version, now, now, Outcome.APPLIED)
        self._step(gradient, divisor, push.worker, push.iteration, push.settings)

    def collect(self, push: Push, gradient: Value, scale: Scale, arrived: Time) -> None:
        """Add a gradient to the sum of its iteration; the first gradient sets the scale."""
        total = self._sums.get(push.iteration)
        if total is None:
            total = _IterationSum(self.block.new_sum(self._workers), scale)
            self._sums[push.iteration] = total
        total.add(push, gradient, arrived)

    def apply_iteration(self, iteration: int, cause: int, now: Time) -> None:
        """Take a step along the sum of an iteration, if it has a gradient.

        cause: the worker whose message ended the iteration; -1: none.
        """
        total = self._sums.pop(iteration, None)
        if total is None:
            return
        for worker, version, arrived in total.contributions:
            self.settle(worker, iteration, version, arrived, now, Outcome.APPLIED)
        self._step(total.gradient(), 1, cause, iteration, total.settings)

    def settle(
        self, worker: int, iteration: int, version: int, arrived: Time, now: Time, outcome: Outcome
    ) -> None:
        """Report the outcome of a push; version: as in `Push`."""
        staleness = self.version - version if outcome is Outcome.APPLIED else -1
        self._observer.push_settled(
            self._shard, worker, iteration, arrived, now, version, outcome, staleness
        )

    def significance(self, gradient: Value) -> float:
        """Return |g| / |w|; 0 if w is 0 or a `Phantom`."""
        if self._norm[0] != self.version:
            self._norm = self.version, norm_of(self.block.read())
        return norm_of(gradient) / self._norm[1] if self._norm[1] else 0.0

    def close(self, now: Time) -> None:
        """End the run: report the pushes whose iteration was not finished."""
        for iteration, total in sorted(self._sums.items()):
            for worker, version, arrived in total.contributions:
                self.settle(worker, iteration, version, arrived, now, Outcome.PENDING)
        self._sums.clear()

    def _step(
        self,
        gradient: Value,
        divisor: int,
        worker: int,
        iteration: int,
        settings: StepSettings | None,
    ) -> None:
        self.block.update(gradient, divisor, settings, self._progress())
        self.version += 1
        if not self.block.is_finite():
            by = f", which worker {worker}'s push completed" if worker >= 0 else ""
            raise DivergenceError(
                f"the parameters of shard {self._shard} stopped being finite at update "
                f"{self.version}, in iteration {iteration}{by}; try a smaller learning rate"
            )
        self._observer.updated(self._shard, self.version)


class _IterationSum:
    """The gradients of one iteration."""

    def __init__(self, total: BlockSum, scale: Scale) -> None:
        self._total, self._scale = total, scale
        self.contributions: list[tuple[int, int, Time]] = []  # worker, version, arrived
        self._lowest: int | None = None  # lowest worker that sent settings
        self._groups: list[dict[str, Any]] = []
        self._unused: set[int] = set()

    def add(self, push: Push, gradient: Value, arrived: Time) -> None:
        self._total.add(push.worker, gradient)
        self.contributions.append((push.worker, push.version, arrived))
        if push.settings is None:
            return
        unused = set(push.settings.unused)
        self._unused = unused if self._lowest is None else self._unused & unused
        if self._lowest is None or push.worker < self._lowest:
            self._lowest, self._groups = push.worker, push.settings.groups

    def gradient(self) -> Value:
        return self._total.mean() if self._scale is Scale.MEAN else self._total.total()

    @property
    def settings(self) -> StepSettings | None:
        """The settings of the lowest worker, and the parameters that no worker used."""
        return None if self._lowest is None else StepSettings(self._groups, sorted(self._unused))
