"""The queue of pulls that a shard holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, TypeAlias

from outpace.support.units import Time
from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision
from outpace.sync.messages import Pull

Held: TypeAlias = tuple[Pull, Time, Decision]  # pull, time of arrival, decision that holds it
_Filed: TypeAlias = dict[tuple[int, int], Held]  # (worker, iteration) -> held pull
_NOTHING: Final[_Filed] = {}


class PullQueue:
    """Held pulls, by release clock or by the worker whose next push or leave may release them."""

    def __init__(self) -> None:
        self._by_clock: dict[int, _Filed] = {}
        self.watched: dict[int, _Filed] = {}  # watched worker, or ANYBODY -> pulls
        self.known: set[tuple[int, int]] = set()  # worker and iteration of each pull

    def __iter__(self) -> Iterator[Held]:
        """Iterate over all pulls, ordered by worker and iteration."""
        every: _Filed = {}
        for filed in (*self._by_clock.values(), *self.watched.values()):
            every |= filed
        for _, held in sorted(every.items()):
            yield held

    def add(self, pull: Pull, arrived: Time, decision: Decision) -> None:
        """File a pull under its decision's release clock or watched worker."""
        release = decision.release_clock
        assert release is not None
        if release == ASK_AGAIN:
            filed = self.watched.setdefault(decision.watch, {})
        else:
            filed = self._by_clock.setdefault(release, {})
        key = pull.worker, pull.iteration
        filed[key] = pull, arrived, decision
        self.known.add(key)

    def take_clock(self, clock: int) -> Collection[Held]:
        """Remove and return the pulls that this clock releases."""
        return self._by_clock.pop(clock, _NOTHING).values()

    def take_watching(self, worker: int) -> Iterator[Held]:
        """Remove and yield the pulls that an action of this worker may release."""
        for watched in {worker, ANYBODY}:
            yield from self.watched.pop(watched, _NOTHING).values()

    def take_worker(self, worker: int) -> Iterator[Held]:
        """Remove and yield the pulls of a worker that leaves."""
        for where in (self._by_clock, self.watched):
            for filed in where.values():
                for key in [key for key in filed if key[0] == worker]:
                    self.known.discard(key)
                    yield filed.pop(key)

    def take_all(self) -> list[Held]:
        """Remove and return all pulls, ordered by worker and iteration."""
        every = list(self)
        self._by_clock.clear()
        self.watched.clear()
        return every

    def forget(self, pull: Pull) -> None:
        """Forget an answered pull, so that an equal pull is not treated as a repetition."""
        self.known.discard((pull.worker, pull.iteration))
