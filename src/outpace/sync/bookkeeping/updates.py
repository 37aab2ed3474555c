"""Applies gradients to a shard's parameters and counts the versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outpace.blocks.block import StepSettings, Value
from outpace.blocks.sums import PartialSum, norm_of
from outpace.errors import DivergenceError
from outpace.support.units import Time
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.messages import Push
from outpace.sync.observer import Outcome, ShardObserver
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.policy import Scale


class Updates:
    """Applies gradients to a block, one by one or an iteration at a time.

    `version` is the number of updates. `progress` is the progress of training in iterations.
    `workers` is the number that the run is to have; fewer take part once some are lost for good.
    """

    def __init__(
        self,
        shard: int,
        block: ParameterBlock,
        workers: int,
        observer: ShardObserver,
        updated: Callable[[int], None] | None,
    ) -> None:
        self.version = 0
        self.block = block
        self._shard, self._workers, self._observer = shard, workers, observer
        self._updated = updated  # called with each new version
        self.workers = workers  # of the run: N in means of gradients that are applied on arrival
        self._sums: dict[int, _IterationSum] = {}  # iteration -> gradients that await its end
        self.mixed = -1  # the last iteration some of whose gradients are applied on arrival
        self._norm: tuple[int, float] = (-1, 0.0)  # version, norm of the parameters

    def apply(self, push: Push, gradient: Value, scale: Scale, progress: float, now: Time) -> None:
        """Take a step along one gradient."""
        staleness = self.version - push.version
        divisor = 1  # SUM, and LINEAR of one gradient: its mean at once the rate
        if scale is Scale.MEAN:
            divisor = self.workers
        elif scale is Scale.STALENESS:
            divisor = max(1, staleness)
        self._observer.push_settled(self._shard, push, now, now, Outcome.APPLIED, staleness)
        self.block.update(gradient, divisor, push.settings, progress)
        self._count(push.worker, push.iteration)

    def collect(self, push: Push, gradient: Value, scale: Scale, arrived: Time) -> None:
        """Add a gradient to the sum of its iteration; the first gradient sets the scale."""
        total = self._sums.get(push.iteration)
        if total is None:
            total = _IterationSum(self.block.new_sum(self._workers), scale)
            self._sums[push.iteration] = total
        total.gradients.add(push.worker, gradient)
        kept = Push(push.worker, push.iteration, push.version, None, push.settings)
        total.pushes.append((kept, arrived))

    def mix(self, last: int) -> None:
        """Note a change between applying gradients on arrival and an iteration at a time.

        Gradients of the iterations up to `last` may have been applied, or will be applied, one
        by one, each divided by N. The sum of an iteration is then divided by N too: its mean
        would give these gradients the weight of all N.
        """
        self.mixed = max(self.mixed, last)

    def apply_iteration(self, iteration: int, cause: int, progress: float, now: Time) -> None:
        """Take a step along the sum of an iteration, if it has a gradient.

        cause: the worker whose message ended the iteration; -1: none.
        """
        total = self._sums.pop(iteration, None)
        if total is None:
            return
        for push, arrived in total.pushes:
            staleness = self.version - push.version
            self._observer.push_settled(self._shard, push, arrived, now, Outcome.APPLIED, staleness)
        gradients = total.gradients
        count, divisor, factor = gradients.count, 1, 1
        if total.scale is Scale.LINEAR:
            factor = count
        elif total.scale is not Scale.MEAN:
            count = 1
        elif iteration <= self.mixed:
            count, divisor = 1, self.workers
        self.block.update(gradients.total(), divisor, total.settings(), progress, factor, count)
        self._count(cause, iteration)

    def dismiss(self, push: Push, arrived: Time, now: Time, outcome: Outcome) -> None:
        """Report the outcome of a push that is not applied."""
        self._observer.push_settled(self._shard, push, arrived, now, outcome, -1)

    def significance(self, gradient: Value) -> float:
        """Return |g| / |w|; 0 if w is 0 or a `Phantom`."""
        if self._norm[0] != self.version:
            self._norm = self.version, norm_of(self.block.read())
        return norm_of(gradient) / self._norm[1] if self._norm[1] else 0.0

    def pending(self) -> tuple[PendingIteration, ...]:
        """Return copies of the sums of the iterations that are not finished."""
        return tuple(
            PendingIteration(
                iteration=iteration,
                scale=total.scale,
                workers=self._workers,
                count=total.gradients.count,
                parts=tuple(total.gradients.parts()),
                pushes=tuple((push.worker, push.version) for push, _ in total.pushes),
                settings=tuple(
                    (push.worker, push.settings)
                    for push, _ in total.pushes
                    if push.settings is not None
                ),
            )
            for iteration, total in sorted(self._sums.items())
        )

    def restore(self, state: ShardState, now: Time) -> None:
        """Take over the parameters, the optimizer's state and the sums of a shard.

        The pushes of these sums count as arrived now.
        """
        self.version, self.mixed = state.version, state.mixed
        self.block.replace(state.parameters)
        if state.optimizer:
            self.block.load_optimizer_state(state.optimizer)
        for each in state.pending:
            total = _IterationSum(self.block.new_sum(self._workers), each.scale)
            total.gradients.restore(each.parts, each.count)
            sent = dict(each.settings)
            for worker, version in each.pushes:
                push = Push(worker, each.iteration, version, None, sent.get(worker))
                total.pushes.append((push, now))
            self._sums[each.iteration] = total

    def close(self, now: Time) -> None:
        """End the run: report the pushes whose iteration was not finished."""
        for _, total in sorted(self._sums.items()):
            for push, arrived in total.pushes:
                self.dismiss(push, arrived, now, Outcome.PENDING)
        self._sums.clear()

    def _count(self, worker: int, iteration: int) -> None:
        """Count an update, completed by a push of this worker (-1: by none)."""
        self.version += 1
        if not self.block.is_finite():
            by = f", which worker {worker}'s push completed" if worker >= 0 else ""
            raise DivergenceError(
                f"the parameters of shard {self._shard} stopped being finite at update "
                f"{self.version}, in iteration {iteration}{by}; try a smaller learning rate"
            )
        if self._updated is not None:
            self._updated(self.version)


@dataclass(slots=True)
class _IterationSum:
    """The gradients of one iteration, and their pushes, without gradients, with time of arrival."""

    gradients: PartialSum
    scale: Scale
    pushes: list[tuple[Push, Time]] = field(default_factory=list)

    def settings(self) -> StepSettings | None:
        """Return the settings of the lowest worker, and the parameters that no worker used."""
        sent = {push.worker: push.settings for push, _ in self.pushes if push.settings is not None}
        if not sent:
            return None
        unused = set.intersection(*(set(settings.unused) for settings in sent.values()))
        return StepSettings(sent[min(sent)].groups, sorted(unused))
