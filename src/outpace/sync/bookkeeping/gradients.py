"""The treatment of the gradients of pushes: applied, added to a sum, held back or dropped."""

from __future__ import annotations

from outpace.blocks.block import Deferred
from outpace.support.units import Time
from outpace.sync.bookkeeping.updates import Updates
from outpace.sync.bookkeeping.view import View
from outpace.sync.messages import Close, Push
from outpace.sync.observer import Outcome
from outpace.sync.policy import Apply, Policy


class Gradients:
    """Takes gradients as the policy says.

    With a policy that has cut-offs they are held back until a `Close` says which count.

    Attributes:
        pushes: number of pushes taken, as if the run had always had as many workers as now.
        furthest: the progress of training in iterations, when it was asked for last.
        is_cut_off: True if a `Close` says which gradients count.
    """

    __slots__ = (
        "_apply",
        "_counting",
        "_held_back",
        "_on_arrival",
        "_scale",
        "_updates",
        "_view",
        "furthest",
        "is_cut_off",
        "pushes",
    )

    def __init__(self, view: View, updates: Updates, policy: Policy) -> None:
        self._view, self._updates = view, updates
        self._held_back: dict[int, list[tuple[Push, Time]]] = {}  # iteration -> push, arrival
        self._counting: dict[int, frozenset[int]] = {}  # closed iteration -> workers that count
        self.pushes, self.furthest = 0, 0.0
        self._set(policy)

    def _set(self, policy: Policy) -> None:
        self._apply, self._scale = policy.apply, policy.scale
        self._on_arrival = self._apply is Apply.ON_ARRIVAL
        self._view.weighs = policy.uses_significance
        self.is_cut_off = policy.cut_off is not None

    def follow(self, policy: Policy, now: Time) -> None:
        """Follow another policy; what only a `Close` would have counted counts now."""
        if policy.apply is not self._apply:
            self._updates.mix(self._view.fastest)
        self._set(policy)
        if not self.is_cut_off:
            for push, arrived in self._take_held_back():
                self._count(push, arrived, now, True)

    def take(self, push: Push, late: bool, now: Time) -> None:
        """Take a push that is not repeated. late: True if its iteration is finished."""
        on_arrival = self._on_arrival
        if push.gradient is None:
            outcome = Outcome.SKIPPED if push.skipped else Outcome.ABSTAINED
            self._updates.dismiss(push, now, now, outcome)
        elif late and not on_arrival:  # a deferred gradient is not computed
            self._updates.dismiss(push, now, now, Outcome.DROPPED)
        elif not self.is_cut_off:
            self._add(push, on_arrival, now)
        elif (counting := self._counting.get(push.iteration)) is None:
            # A deferred one is not computed until the shard knows whether it counts.
            self._held_back.setdefault(push.iteration, []).append((push, now))
        else:
            self._count(push, now, now, push.worker in counting)
        self.pushes += 1

    def is_closed(self, iteration: int) -> bool:
        """True if an iteration was closed and is not finished."""
        return iteration in self._counting

    def close(self, close: Close, now: Time) -> None:
        """Count the gradients of an iteration that were held back, or drop them."""
        counting = self._counting[close.iteration] = frozenset(close.workers)
        for push, arrived in self._held_back.pop(close.iteration, []):
            self._count(push, arrived, now, push.worker in counting)

    def finish(self, iteration: int, cause: int, now: Time) -> None:
        """Apply what was collected for an iteration; cause: as for `Updates.apply_iteration`."""
        self._updates.apply_iteration(iteration, cause, self._progress(), now)
        self._counting.pop(iteration, None)  # pushes that come later are dropped without it

    def dismiss_all(self, now: Time) -> None:
        """End the run: report the pushes whose gradients have not been applied."""
        self._updates.close(now)
        for push, arrived in self._take_held_back():
            self._updates.dismiss(push, arrived, now, Outcome.PENDING)

    def _take_held_back(self) -> list[tuple[Push, Time]]:
        """Remove and return all pushes: by iteration, then in order of arrival."""
        found = [held for _, pushes in sorted(self._held_back.items()) for held in pushes]
        self._held_back.clear()
        return found

    def _count(self, push: Push, arrived: Time, now: Time, counts: bool) -> None:
        if counts:
            self._add(push, False, arrived)
        else:
            self._updates.dismiss(push, arrived, now, Outcome.DROPPED)

    def _add(self, push: Push, on_arrival: bool, now: Time) -> None:
        assert push.gradient is not None
        gradient = push.gradient
        if isinstance(gradient, Deferred):
            gradient = gradient.value()
        gradient = self._updates.block.widened(gradient)
        if self._view.weighs:
            self._view.weigh(push.worker, self._updates.significance(gradient))
        if on_arrival:
            self._updates.apply(push, gradient, self._scale, self._progress(), now)
        else:
            self._updates.collect(push, gradient, self._scale, now)

    def _progress(self) -> float:
        """Return the progress of training in iterations; on arrival, N pushes count as one."""
        furthest, clock = self.furthest, self._view.clock
        applied = self.pushes / self._updates.workers if self._on_arrival else 0.0
        # Policies count differently, so after a change of policy the maximum is kept.
        if clock > furthest:
            furthest = clock
        if applied > furthest:
            furthest = applied
        self.furthest = furthest
        return furthest
