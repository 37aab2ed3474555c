"""The policy's view of its shard (`sync.policy.ShardView`), updated by the shard.

Counts are updated with each message, so that the cost of a decision does not depend on the
number of workers.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable

from outpace.errors import PolicyError
from outpace.support.units import Time


class View:
    """Implements `ShardView`; the other methods are for the shard alone."""

    __slots__ = (
        "_at",
        "_closed",
        "_laggard",
        "_left_out",
        "_own",
        "_pushed",
        "_significance",
        "_spared",
        "_steps",
        "absent",
        "answered",
        "clock",
        "fastest",
        "gone",
        "live",
        "members",
        "reached",
        "shard",
        "slowest",
        "watermarks",
        "weighs",
        "workers",
    )

    def __init__(self, shard: int, workers: int) -> None:
        self.shard, self.clock = shard, 0
        self.workers = self.live = self.members = workers
        self.reached = 0
        self.slowest = self.fastest = -1
        self.watermarks = [-1] * workers  # the progress of all workers
        self._own: Counter[int] = Counter()  # iteration (V or later) -> its pushes
        self._at = Counter({-1: workers})  # watermark -> number of live workers
        self.gone: set[int] = set()  # workers that have left
        self.absent: set[int] = set()  # workers that have left or paused
        self._left_out: set[int] = set()  # paused workers that have not pushed iteration V
        self._closed: dict[int, set[int]] = {}  # iteration -> workers whose gradients are missing
        self.weighs = False  # True: gradients are applied as they arrive
        self._significance: dict[int, float] = {}
        self._spared: dict[int, int] = {}  # worker -> lead
        # Arrays, because a list would keep an object for each time and fill the processor's cache.
        self._pushed = _times(0, workers)  # time of each worker's last push
        self.answered = _times(0, workers)  # time of each worker's last answer
        self._steps = _times(0, workers)
        self._laggard = 0

    def progress(self, worker: int) -> int:
        return self.watermarks[worker]

    def is_live(self, worker: int) -> bool:
        return self.is_member(worker) and worker not in self._left_out

    def count(self, iteration: int) -> int:
        return sum(count for watermark, count in self._at.items() if watermark >= iteration)

    @property
    def pushed(self) -> int:
        return self._own[self.clock]

    @property
    def awaited(self) -> int | None:
        closed = self._closed.get(self.clock)
        return None if closed is None else len(closed - self.gone)

    def significance(self, worker: int) -> float:
        if not self.weighs:
            raise PolicyError(
                "view.significance is not computed: a policy that calls it declares "
                "uses_significance = True"
            )
        return self._significance.get(worker, 0.0)

    def spared(self, worker: int) -> int:
        return self._spared.get(worker, -1)

    def last_push(self, worker: int) -> Time:
        return self._pushed[worker]

    def step_time(self, worker: int) -> Time:
        return self._steps[worker]

    def laggard(self) -> int:
        # the laggard that was found last stays the same until it pushes
        for _ in range(self.workers):
            if self.watermarks[self._laggard] < self.clock and self.is_live(self._laggard):
                break
            self._laggard = (self._laggard + 1) % self.workers
        return self._laggard

    # -- for the shard alone ---------------------------------------------------------

    def is_member(self, worker: int) -> bool:
        """True if this worker exists and has not left."""
        return 0 <= worker < self.workers and worker not in self.gone

    def is_paused(self, worker: int) -> bool:
        return worker in self.absent and worker not in self.gone

    def restore(
        self,
        clock: int,
        watermarks: Iterable[int],
        gone: Collection[int],
        pushes: Iterable[tuple[int, int]],
        now: Time,
    ) -> None:
        """Take over the progress of another view; only for a new view.

        No worker is paused. Policies that use times know of no earlier step. pushes: worker and
        iteration of the gradients that wait for the end of their iteration.
        """
        self.clock, self.watermarks = clock, list(watermarks)
        self.gone, self.absent = set(gone), set(gone)
        there = [mark for worker, mark in enumerate(self.watermarks) if worker not in gone]
        self._at = Counter(there)
        self.live = self.members = len(there)
        self.reached = sum(mark >= clock for mark in there)
        self.slowest, self.fastest = min(there, default=-1), max(self.watermarks)
        self._pushed, self.answered = _times(now, self.workers), _times(now, self.workers)
        # A push without gradient, or applied on arrival, is known only if it is its worker's last
        # push.
        last = {(n, mark) for n, mark in enumerate(self.watermarks) if n not in self.gone}
        pushed = last.union(pushes)
        self._own = Counter(iteration for _, iteration in pushed if iteration >= clock)

    def rejoin(self, worker: int, first: int, now: Time) -> None:
        """Count a worker that begins with iteration `first` in a new process.

        A worker that had left counts as having pushed all finished iterations.
        """
        self.resume(worker)
        before = first - 1
        if worker in self.gone:
            self.gone.discard(worker)
            self.absent.discard(worker)
            self.members += 1
            self.reached += self.watermarks[worker] >= self.clock
            self._count_in(worker)
            before = max(before, self.clock - 1)
        if before > self.watermarks[worker]:
            self.push(worker, before, now, is_own=False)
        self._steps[worker] = 0

    def push(self, worker: int, iteration: int, now: Time, *, is_own: bool = True) -> None:
        """Raise the watermark of a worker.

        is_own: True if it has pushed this iteration, False if the iteration only counts as pushed.
        """
        at, before = self._at, self.watermarks[worker]
        self.watermarks[worker] = iteration
        self._pushed[worker] = now
        self._steps[worker] = now - self.answered[worker]
        if iteration >= self.clock:
            if is_own:
                self._own[iteration] += 1
            if before < self.clock:
                self.reached += 1
        if iteration > self.fastest:
            self.fastest = iteration
        at[iteration] += 1
        if at[before] > 1:
            at[before] -= 1
        else:
            self._uncount(before)
        if self._closed:
            for closed, missing in self._closed.items():
                if closed <= iteration:
                    missing.discard(worker)

    def close(self, iteration: int, workers: Iterable[int]) -> None:
        self._closed[iteration] = {
            worker for worker in workers if self.watermarks[worker] < iteration
        }

    def spare(self, worker: int, lead: int) -> None:
        """Note that a random draw has let a worker with this lead pass."""
        self._spared[worker] = max(lead, self.spared(worker))

    def forget_spared(self, worker: int | None = None) -> None:
        """Forget the lead of a held worker, or the leads of all workers; see `ShardView.spared`."""
        if worker is None:
            self._spared.clear()
        else:
            self._spared.pop(worker, None)

    def weigh(self, worker: int, significance: float) -> None:
        self._significance[worker] = significance

    def leave(self, worker: int) -> None:
        self.members -= 1
        self.reached -= self.watermarks[worker] >= self.clock
        if worker not in self._left_out:
            self._leave_out(worker)
        self.gone.add(worker)
        self.absent.add(worker)
        self._left_out.discard(worker)

    def pause(self, worker: int) -> None:
        """Leave a worker out of the iterations that it has not pushed."""
        self.absent.add(worker)
        if self.watermarks[worker] < self.clock:
            self._left_out.add(worker)
            self._leave_out(worker)

    def resume(self, worker: int) -> None:
        """Count a worker again, at its watermark."""
        if worker not in self.gone:
            self.absent.discard(worker)
        if worker in self._left_out:
            self._left_out.discard(worker)
            self._count_in(worker)

    def _count_in(self, worker: int) -> None:
        """Count a worker among the live ones."""
        watermark = self.watermarks[worker]
        self._at[watermark] += 1
        self.slowest = min(self.slowest, watermark) if self.live else watermark
        self.live += 1

    def _leave_out(self, worker: int) -> None:
        self.live -= 1
        self._uncount(self.watermarks[worker])

    def _uncount(self, watermark: int) -> None:
        """Remove one live worker from the count at this watermark, and update `slowest`."""
        if self._at[watermark] > 1:
            self._at[watermark] -= 1
            return
        del self._at[watermark]
        if watermark == self.slowest and self._at:
            while self.slowest not in self._at:
                self.slowest += 1

    def advance(self) -> list[int]:
        """Begin the next iteration; return the paused workers whose pushes it does not wait for."""
        self.reached -= self._at[self.clock]
        if self._closed:
            self._closed.pop(self.clock, None)
        self._own.pop(self.clock, None)
        self.clock += 1
        paused = self.absent - self.gone - self._left_out
        behind = [n for n in paused if self.watermarks[n] < self.clock]
        for worker in behind:
            self._left_out.add(worker)
            self._leave_out(worker)
        return behind


def _times(time: Time, workers: int) -> array[int]:
    return array("q", [time]) * workers
