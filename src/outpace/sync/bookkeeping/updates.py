"""Applies the gradients of pushes, adds them to a sum, holds them back, or drops them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from outpace.blocks.block import StepSettings, Value, differences
from outpace.blocks.sums import PartialSum, norm_of
from outpace.errors import DivergenceError
from outpace.support.units import Time
from outpace.sync.bookkeeping.view import View
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.messages import Close, Push, worker_name
from outpace.sync.observer import Outcome, ShardObserver
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.policy import Apply, Policy, Scale


class Updates:
    """Applies gradients to a block as the policy says, one by one or an iteration at a time.

    If the policy has cut-offs, gradients are held back until a `Close` says which of them count.

    Args:
        view: the view of the shard. Its `workers` is the planned number of workers, which is N in
            the mean of gradients that are applied on arrival; fewer workers contribute once some
            are lost for good.
        updated: called with each new version.

    Attributes:
        version: number of updates.
        pushes: number of pushes taken, converted to the present number of workers.
        furthest: the progress of training in iterations when it was last asked for. If gradients
            are applied on arrival, N pushes count as one iteration.
        mixed: the last iteration in which some gradients are applied on arrival.
        is_cut_off: True if a `Close` says which gradients count.
    """

    def __init__(
        self,
        view: View,
        block: ParameterBlock,
        policy: Policy,
        observer: ShardObserver,
        updated: Callable[[int], None] | None,
        warn: Callable[[str], None] | None,
    ) -> None:
        self.version, self.pushes, self.furthest, self.mixed = 0, 0, 0.0, -1
        self.block = block
        self._view, self._observer, self._updated = view, observer, updated
        self._sums: dict[int, _IterationSum] = {}  # iteration -> gradients that wait for its end
        self._held_back: dict[int, list[tuple[Push, Time]]] = {}  # iteration -> push, arrival
        # closed iteration -> workers whose gradients count
        self._counting: dict[int, frozenset[int]] = {}
        self._norm: tuple[int, float] = (-1, 0.0)  # version, norm of the parameters
        self._warn = warn  # None once it has been called
        self._set(policy)

    def _set(self, policy: Policy) -> None:
        self._apply, self._scale = policy.apply, policy.scale
        self._on_arrival = self._apply is Apply.ON_ARRIVAL
        self._pushes_each = self._view.workers if self._on_arrival else math.inf
        self._view.weighs = policy.uses_significance
        self.is_cut_off = policy.cut_off is not None

    def follow(self, policy: Policy, now: Time) -> None:
        """Follow another policy; apply the gradients that only a `Close` would have counted.

        In iterations that workers have begun, gradients may have been applied, or will be applied,
        one by one, each divided by N. So the sum of the other gradients of such an iteration is
        divided by N as well: their mean would give them the weight of all N gradients.
        """
        if policy.apply is not self._apply:
            self.mixed = max(self.mixed, self._view.fastest)
        self._set(policy)
        if not self.is_cut_off:
            for push, arrived in self._take_held_back():
                self._add(push, False, arrived)

    def take(self, push: Push, late: bool, now: Time) -> None:
        """Take a push that is not repeated. late: True if its iteration is finished."""
        if push.gradient is None:
            outcome = Outcome.SKIPPED if push.skipped else Outcome.ABSTAINED
            self.dismiss(push, now, now, outcome)
        elif late and not self._on_arrival:  # a deferred gradient that is dropped is not computed
            self.dismiss(push, now, now, Outcome.DROPPED)
        elif not self.is_cut_off:
            self._add(push, self._on_arrival, now)
        elif (counting := self._counting.get(push.iteration)) is None:
            # A deferred gradient is not computed until the shard knows whether it counts.
            self._held_back.setdefault(push.iteration, []).append((push, now))
        else:
            self._count(push, now, now, counting)
        self.pushes += 1

    def is_closed(self, iteration: int) -> bool:
        """True if an iteration is closed but not finished."""
        return iteration in self._counting

    def close(self, close: Close, now: Time) -> None:
        """Count, or drop, the gradients of an iteration that were held back."""
        counting = self._counting[close.iteration] = frozenset(close.workers)
        for push, arrived in self._held_back.pop(close.iteration, []):
            self._count(push, arrived, now, counting)

    def finish(self, iteration: int, cause: int, now: Time) -> None:
        """Take a step along the sum of an iteration, if it has a gradient.

        cause: the worker whose message ended the iteration; -1: none.
        """
        self.furthest = max(self.furthest, self._view.clock, self.pushes / self._pushes_each)
        self._counting.pop(iteration, None)  # later pushes are dropped without the list of workers
        total = self._sums.pop(iteration, None)
        if total is None:
            return
        shard, version = self._view.shard, self.version
        for push, arrived in total.pushes:
            staleness = version - push.version
            self._observer.push_settled(shard, push, arrived, now, Outcome.APPLIED, staleness)
        gradients = total.gradients
        count, divisor, factor = gradients.count, 1, 1
        if total.scale is Scale.LINEAR:
            factor = count
        elif total.scale is not Scale.MEAN:
            count = 1
        elif iteration <= self.mixed:
            count, divisor = 1, self._view.workers
        sent = total.sent()
        if self._warn is not None and (found := _difference(sent)):
            self._warn(
                f"{found} in iteration {iteration}, and the step along the sum of their gradients "
                "uses the first one's: give the schedulers of all workers the same values, or use "
                "a strategy that applies each gradient on arrival, such as sync.kind=asp"
            )
            self._warn = None
        settings = _of_sum(sent)
        self._step(gradients.total(), divisor, settings, cause, iteration, factor, count)

    def dismiss(self, push: Push, arrived: Time, now: Time, outcome: Outcome) -> None:
        """Report the outcome of a push that is not applied."""
        self._observer.push_settled(self._view.shard, push, arrived, now, outcome, -1)

    def dismiss_all(self, now: Time) -> None:
        """End the run: report the pushes whose gradients have not been applied."""
        pending = [held for _, total in sorted(self._sums.items()) for held in total.pushes]
        self._sums.clear()
        for push, arrived in pending + self._take_held_back():
            self.dismiss(push, arrived, now, Outcome.PENDING)

    def pending(self) -> tuple[PendingIteration, ...]:
        """Return copies of the sums of the iterations that are not finished."""
        return tuple(
            PendingIteration(
                iteration=iteration,
                scale=total.scale,
                workers=self._view.workers,
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
        """Take over the counts, the parameters, the optimizer's state and the sums of a shard.

        The pushes in these sums count as having arrived now.
        """
        self.version, self.mixed = state.version, state.mixed
        self.pushes, self.furthest = state.pushes, state.furthest
        self.block.replace(state.parameters)
        if state.optimizer:
            self.block.load_optimizer_state(state.optimizer)
        for each in state.pending:
            total = _IterationSum(self.block.new_sum(self._view.workers), each.scale)
            total.gradients.restore(each.parts, each.count)
            sent = dict(each.settings)
            for worker, version in each.pushes:
                push = Push(worker, each.iteration, version, None, sent.get(worker))
                total.pushes.append((push, now))
            self._sums[each.iteration] = total

    def _take_held_back(self) -> list[tuple[Push, Time]]:
        """Remove and return all held-back pushes, by iteration and then in the order of arrival."""
        found = [held for _, pushes in sorted(self._held_back.items()) for held in pushes]
        self._held_back.clear()
        return found

    def _count(self, push: Push, arrived: Time, now: Time, counting: frozenset[int]) -> None:
        """Add a gradient of a closed iteration to its sum if the gradient's worker counts."""
        if push.worker in counting:
            self._add(push, False, arrived)
        else:
            self.dismiss(push, arrived, now, Outcome.DROPPED)

    def _add(self, push: Push, on_arrival: bool, now: Time) -> None:
        """Take a step along a gradient, or add it to the sum of its iteration."""
        view, scale, version = self._view, self._scale, self.version
        assert push.gradient is not None
        gradient = self.block.value_of(push.gradient)
        if view.weighs:
            view.weigh(push.worker, self._significance(gradient))
        if not on_arrival:
            self._collect(push, gradient, now)
            return
        self.furthest = max(self.furthest, view.clock, self.pushes / self._pushes_each)
        staleness = version - push.version
        divisor = 1  # SUM, and LINEAR with one gradient: the learning rate is not multiplied
        if scale is Scale.MEAN:
            divisor = view.workers
        elif scale is Scale.STALENESS:
            divisor = max(1, staleness)
        self._observer.push_settled(view.shard, push, now, now, Outcome.APPLIED, staleness)
        self._step(gradient, divisor, push.settings, push.worker, push.iteration)

    def _collect(self, push: Push, gradient: Value, arrived: Time) -> None:
        """Add a gradient to the sum of its iteration; the first gradient determines the scale."""
        total = self._sums.get(push.iteration)
        if total is None:
            total = _IterationSum(self.block.new_sum(self._view.workers), self._scale)
            self._sums[push.iteration] = total
        total.gradients.add(push.worker, gradient)
        # Without the gradient: its memory is free once the gradient is added.
        kept = Push(push.worker, push.iteration, push.version, None, push.settings)
        total.pushes.append((kept, arrived))

    def _significance(self, gradient: Value) -> float:
        """Return |g| / |w|; 0 if w is 0 or a `Phantom`."""
        if self._norm[0] != self.version:
            self._norm = self.version, norm_of(self.block.read())
        return norm_of(gradient) / self._norm[1] if self._norm[1] else 0.0

    def _step(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        worker: int,
        iteration: int,
        factor: float = 1.0,
        count: int = 1,
    ) -> None:
        """Take a step and count it. worker: the worker whose push completed the step; -1: none.

        The other arguments are the same as in `ParameterBlock.update`.
        """
        finite = self.block.update(gradient, divisor, settings, self.furthest, factor, count)
        self.version += 1
        if not finite:
            by = f", which worker {worker}'s push completed" if worker >= 0 else ""
            raise DivergenceError(
                f"the parameters of shard {self._view.shard} stopped being finite at update "
                f"{self.version}, in iteration {iteration}{by}; try a smaller learning rate"
            )
        if self._updated is not None:
            self._updated(self.version)


@dataclass(slots=True)
class _IterationSum:
    """The sum of the gradients of an iteration, and its pushes with their times of arrival."""

    gradients: PartialSum
    scale: Scale
    pushes: list[tuple[Push, Time]] = field(default_factory=list)

    def sent(self) -> list[tuple[int, StepSettings]]:
        """Return the workers that sent settings, in order, and the settings."""
        sent = {push.worker: push.settings for push, _ in self.pushes if push.settings is not None}
        return sorted(sent.items(), key=itemgetter(0))


def _difference(sent: Sequence[tuple[int, StepSettings]]) -> str:
    """Return the first two workers with different settings, as text; empty if there are none.

    A step along a sum has one learning rate, so the schedules of other workers would be ignored
    without a word.
    """
    for worker, settings in sent[1:]:
        first, firsts = sent[0]
        if settings.groups != firsts.groups:
            return (
                f"the optimizers of {worker_name(first)} and {worker_name(worker)} have "
                f"different settings ({differences(firsts.groups, settings.groups)})"
            )
    return ""


def _of_sum(sent: Sequence[tuple[int, StepSettings]]) -> StepSettings | None:
    """Return the settings of the lowest-numbered worker, and the parameters that none used."""
    if not sent:
        return None
    unused = set.intersection(*(set(settings.unused) for _, settings in sent))
    return StepSettings(sent[0][1].groups, sorted(unused))
