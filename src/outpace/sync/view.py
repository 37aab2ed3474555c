"""The policy's view of its shard (`sync.policy.ShardView`), updated by the shard.

Counts are updated with each message, so that the cost of a decision does not depend on the
number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable

from outpace.support.units import Time


class View:
    """Implements `ShardView`; the other methods are for the shard alone."""

    __slots__ = (
        "_answered",
        "_at",
        "_closed",
        "_gone",
        "_laggard",
        "_progress",
        "_pushed",
        "_significance",
        "_steps",
        "clock",
        "fastest",
        "live",
        "reached",
        "shard",
        "slowest",
        "workers",
    )

    def __init__(self, shard: int, workers: int) -> None:
        self.shard, self.clock = shard, 0
        self.workers = self.live = workers
        self.reached = 0
        self.slowest = self.fastest = -1
        self._progress = [-1] * workers  # watermarks
        self._at = {-1: workers}  # watermark -> number of live workers
        self._gone: set[int] = set()
        self._closed: dict[int, set[int]] = {}  # iteration -> workers whose gradients are missing
        self._significance: dict[int, float] = {}
        self._pushed: list[Time] = [0] * workers  # time of the last push
        self._answered: list[Time] = [0] * workers
        self._steps: list[Time] = [0] * workers
        self._laggard = 0

    def progress(self, worker: int) -> int:
        return self._progress[worker]

    def is_live(self, worker: int) -> bool:
        return 0 <= worker < self.workers and worker not in self._gone

    def count(self, iteration: int) -> int:
        return sum(count for watermark, count in self._at.items() if watermark >= iteration)

    @property
    def awaited(self) -> int | None:
        closed = self._closed.get(self.clock)
        return None if closed is None else len(closed)

    def significance(self, worker: int) -> float:
        return self._significance.get(worker, 0.0)

    def last_push(self, worker: int) -> Time:
        return self._pushed[worker]

    def step_time(self, worker: int) -> Time:
        return self._steps[worker]

    def laggard(self) -> int:
        for _ in range(self.workers):  # the laggard found stays the same until it pushes
            if self._progress[self._laggard] < self.clock and self._laggard not in self._gone:
                break
            self._laggard = (self._laggard + 1) % self.workers
        return self._laggard

    # -- for the shard alone ---------------------------------------------------------

    def push(self, worker: int, iteration: int, now: Time) -> None:
        before = self._progress[worker]
        self._progress[worker] = iteration
        self._pushed[worker] = now
        self._steps[worker] = now - self._answered[worker]
        self.reached += before < self.clock <= iteration
        self.fastest = max(self.fastest, iteration)
        self._at[iteration] = self._at.get(iteration, 0) + 1
        self._uncount(before)
        for closed, missing in self._closed.items():
            if closed <= iteration:
                missing.discard(worker)

    def close(self, iteration: int, workers: Iterable[int]) -> None:
        self._closed[iteration] = {
            worker
            for worker in workers
            if self._progress[worker] < iteration and worker not in self._gone
        }

    def answer(self, worker: int, now: Time) -> None:
        self._answered[worker] = now

    def weigh(self, worker: int, significance: float) -> None:
        self._significance[worker] = significance

    def leave(self, worker: int) -> None:
        self._gone.add(worker)
        self.live -= 1
        self.reached -= self._progress[worker] >= self.clock
        self._uncount(self._progress[worker])
        for missing in self._closed.values():
            missing.discard(worker)

    def _uncount(self, watermark: int) -> None:
        """Remove one live worker from this watermark, and update `slowest`."""
        if self._at[watermark] > 1:
            self._at[watermark] -= 1
            return
        del self._at[watermark]
        if watermark == self.slowest and self._at:
            while self.slowest not in self._at:
                self.slowest += 1

    def advance(self) -> None:
        self.reached -= self._at.get(self.clock, 0)
        if self._closed:
            self._closed.pop(self.clock, None)
        self.clock += 1
