"""Workers whose processes are there, from the order to the servers until they begin.

The servers say with which iteration each worker begins. When that is known of all, the data are
divided anew, and the workers are told. If one is lost before, the others begin without it, and its
next process begins later. The first to begin sets the iteration from which on the data are for all,
so no two workers use the same batch. If all are lost for good, none begins, and the data are
divided at an iteration a little ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from outpace.real.coordinator.joining_scripts import JoiningScripts
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.sync.membership import Membership, Start
from outpace.sync.messages import worker_name

if TYPE_CHECKING:
    from outpace.real.coordinator.recovery.replacements import Replacements


class JoiningWorkers:
    """The workers that are to begin.

    Args:
        checkpoints: those of the run; None: none are taken.
        replacements: tells a worker to begin.
        scripts: what their scripts begin with; None: they have none.
        hears: returns True if the coordinator hears this generation of a worker's process.
        divide: divides the data among all workers from an iteration on.
        soon: returns an iteration that no worker has begun yet.
        have_begun: called when the data are divided, and all have begun or are lost.
    """

    def __init__(
        self,
        run: RunAround,
        members: Membership,
        checkpoints: CheckpointsOfServers | None,
        replacements: Replacements,
        scripts: JoiningScripts | None,
        hears: Callable[[int, int], bool],
        divide: Callable[[int], None],
        soon: Callable[[], int],
        have_begun: Callable[[], None],
    ) -> None:
        self._reports, self._members, self._checkpoints = run.reports, members, checkpoints
        self._replacements, self._scripts, self._hears = replacements, scripts, hears
        self._divide, self._soon, self._have_begun = divide, soon, have_begun
        self._is_under_way = self._is_divided = False
        self._joining: set[int] = set()  # they are to begin
        self._starts: dict[int, Start] = {}
        # Those that were not told to begin yet, and those that were lost before.
        self._unbegun: set[int] = set()

    def join(self, workers: Collection[int]) -> None:
        """The servers are about to be told of these workers."""
        self._is_under_way, self._is_divided = True, False
        self._joining, self._starts = set(workers), {}
        self._unbegun |= self._joining

    def starts(self, order: Start) -> bool:
        """A worker may begin; False if its process is still to be started."""
        if order.worker in self._joining and self._hears(order.worker, order.generation):
            self._starts[order.worker] = order
            self._begin_if_all_may()
            return True
        if order.worker in self._unbegun:  # it was lost, and its next process begins here
            self._count(order)
            if self._is_under_way:
                self._divide_once(order.first)
            self._end_if_all_have_begun()
        return False

    def began(self, worker: int) -> bool:
        """The process of a worker was told to start; False if it takes the place of a lost one."""
        if worker not in self._joining:
            return False
        self._joining.discard(worker)
        self._end_if_all_have_begun()
        return True

    def lost(self, worker: int) -> None:
        """A worker is lost: if it was about to begin, another process does."""
        if worker in self._joining:
            self._joining.discard(worker)
            self._starts.pop(worker, None)
            self._begin_if_all_may()
            self._end_if_all_have_begun()

    def look_after_loss(self) -> None:
        """The machine knows of a loss, and if another process takes the worker's place."""
        self._unbegun = {each for each in self._unbegun if not self._members.has_left(each)}
        if self._is_under_way and not self._is_divided and not self._unbegun:
            self._divide_once(self._soon())  # all are lost for good
            self._end_if_all_have_begun()

    def _begin_if_all_may(self) -> None:
        starts = self._starts
        if not starts or self._joining - starts.keys():
            return
        self._starts = {}
        self._divide_once(max(order.first for order in starts.values()))
        for worker, order in sorted(starts.items()):
            name, reports = worker_name(worker), self._reports
            self._count(order)
            if name in reports.totals_of:
                reports.begins_again(name, order.generation, worker, None)
            self._replacements.begins(worker, order.first, self._scripts)

    def _count(self, order: Start) -> None:
        """Count the iterations of a worker from its first one on."""
        self._unbegun.discard(order.worker)
        done = self._reports.totals.iterations.get(order.worker, 0)
        if self._checkpoints is not None:
            self._checkpoints.joins(order.worker, order.first - done)
        self._replacements.has_not_done(order.worker, order.first - done)

    def _divide_once(self, first: int) -> None:
        if not self._is_divided:
            self._is_divided = True
            self._divide(first)

    def _end_if_all_have_begun(self) -> None:
        if self._is_under_way and self._is_divided and not self._joining:
            self._is_under_way = False
            self._have_begun()
