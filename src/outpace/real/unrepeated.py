"""The scripts of a real run that begin anew, and the iterations that are lost with that."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outpace.engine.resuming import ResumePoint
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.observers import RunObserver
from outpace.real.net.sparse_log import Log
from outpace.sync.membership.machine import Removed, Start
from outpace.sync.messages import worker_name


class Unrepeated(RunObserver):
    """Says whose scripts begin anew: those that give `outpace.attach` nothing to keep."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lost_since = 0, 0  # a checkpoint, and the iterations after it
        self._coordinator: Coordinator

    def attach(self, coordinator: Coordinator) -> None:
        """Say it of this attempt."""
        self._coordinator = coordinator
        coordinator.observers.add(self)

    def recovered(self, recovered: Start | Removed) -> None:
        if isinstance(recovered, Start) and recovered.worker in self._coordinator.unrepeatable:
            self._say([recovered.worker], "that the servers have")

    def since(self, point: ResumePoint, done: Mapping[int, int]) -> int:
        """Return the iterations since a checkpoint that scripts will not repeat as they were.

        Args:
            done: by worker, the iterations that it has completed.
        """
        scripts = self._beginning_anew(point)
        if not scripts:
            return 0
        before = point.totals.iterations
        since = sum(max(0, done.get(each, 0) - before.get(each, 0)) for each in scripts)
        number, earlier = self._lost_since
        self._lost_since = point.number, since + (earlier if number == point.number else 0)
        return self._lost_since[1]

    def say_since(self, point: ResumePoint) -> None:
        """Say whose scripts begin anew now that all go back to a checkpoint."""
        if scripts := self._beginning_anew(point):
            self._say(scripts, "of the checkpoint")

    def _beginning_anew(self, point: ResumePoint) -> set[int]:
        return set(self._coordinator.unrepeatable).difference(point.checkpoint.index.ended)

    def _say(self, workers: Collection[int], parameters: str) -> None:
        names = ", ".join(map(worker_name, sorted(workers)))
        begin = f"scripts of {names} begin" if len(workers) > 1 else f"script of {names} begins"
        self._log(
            f"the {begin} anew, with the parameters {parameters}: no objects to keep are given to "
            "outpace.attach, and outpace.sampler is not used"
        )
