"""Gradients of a strategy with cut-offs: a shard holds them back until a Close says which count."""

from __future__ import annotations

from collections.abc import Collection

from outpace.support.units import Time
from outpace.sync.messages import Push


class HeldBack:
    """The pushes that are held back, and the workers that count in closed iterations."""

    __slots__ = ("_counting", "_pushes")

    def __init__(self) -> None:
        self._pushes: dict[int, list[tuple[Push, Time]]] = {}  # iteration -> push, arrival
        self._counting: dict[int, frozenset[int]] = {}  # iteration -> workers

    def counts(self, push: Push) -> bool | None:
        """True if the push counts in its iteration; None if the iteration is not closed."""
        counting = self._counting.get(push.iteration)
        return None if counting is None else push.worker in counting

    def hold(self, push: Push, arrived: Time) -> None:
        """Hold a push back until its iteration is closed."""
        self._pushes.setdefault(push.iteration, []).append((push, arrived))

    def is_closed(self, iteration: int) -> bool:
        """True if an iteration was closed and is not finished."""
        return iteration in self._counting

    def close(self, iteration: int, workers: Collection[int]) -> list[tuple[Push, Time]]:
        """Close an iteration: these workers count. Return its pushes, in order of arrival."""
        self._counting[iteration] = frozenset(workers)
        return self._pushes.pop(iteration, [])

    def finish(self, iteration: int) -> None:
        """Forget a closed iteration; pushes that come later are dropped without it."""
        self._counting.pop(iteration, None)

    def take_all(self) -> list[tuple[Push, Time]]:
        """Remove and return all pushes: by iteration, then in order of arrival."""
        found = [held for _, pushes in sorted(self._pushes.items()) for held in pushes]
        self._pushes.clear()
        return found
