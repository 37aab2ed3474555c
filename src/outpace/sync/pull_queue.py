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
    """Held pulls by release clock, or by the worker whose next push or leave may release them."""

    def __init__(self) -> None:
        self._by_clock: dict[int, _Filed] = {}
        self._by_watch: dict[int, _Filed] = {}  # watched worker, or ANYBODY -> pulls
        self._known: set[tuple[int, int]] = set()  # worker and iteration of each pull

    def __contains__(self, pull: Pull) -> bool:
        return (pull.worker, pull.iteration) in self._known

    def __iter__(self) -> Iterator[Held]:
        """Iterate over all pulls, ordered by worker and iteration."""
        filed = [*self._by_clock.values(), *self._by_watch.values()]
        every = [held for each in filed for held in each.values()]
        return iter(sorted(every, key=lambda held: (held[0].worker, held[0].iteration)))

    @property
    def is_watching(self) -> bool:
        """True if a pull is held until a worker pushes or leaves, not until a clock."""
        return bool(self._by_watch)

    def add(self, pull: Pull, arrived: Time, decision: Decision) -> None:
        """File a pull under its decision's release clock or watched worker."""
        release = decision.release_clock
        assert release is not None
        where, key = (
            (self._by_watch, decision.watch) if release == ASK_AGAIN else (self._by_clock, release)
        )
        filed = where.get(key)
        if filed is None:
            filed = where[key] = {}
        worker_and_iteration = pull.worker, pull.iteration
        filed[worker_and_iteration] = pull, arrived, decision
        self._known.add(worker_and_iteration)

    def take_clock(self, clock: int) -> Collection[Held]:
        """Remove and return the pulls that this clock releases."""
        return self._by_clock.pop(clock, _NOTHING).values()

    def take_watching(self, worker: int) -> Iterator[Held]:
        """Remove and yield the pulls that may be released because this worker pushed or left."""
        for watched in {worker, ANYBODY}:
            yield from self._by_watch.pop(watched, _NOTHING).values()

    def take_worker(self, worker: int) -> Iterator[Held]:
        """Remove and yield the pulls of a worker that leaves."""
        for where in (self._by_clock, self._by_watch):
            for filed in where.values():
                for key in [key for key in filed if key[0] == worker]:
                    self._known.discard(key)
                    yield filed.pop(key)

    def take_all(self) -> list[Held]:
        """Remove and return all pulls, ordered by worker and iteration."""
        every = list(self)
        self._by_clock.clear()
        self._by_watch.clear()
        return every

    def forget(self, pull: Pull) -> None:
        """Forget an answered pull, so that an equal pull is not treated as a repetition."""
        self._known.discard((pull.worker, pull.iteration))
