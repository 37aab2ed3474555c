"""The scripts of a real run that begin anew, and the iterations that are lost with that."""

from __future__ import annotations

from collections.abc import Mapping

from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.anew import REMEDY, LostSince, begin_anew
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.observers import RunObserver
from outpace.real.net.sparse_log import Log
from outpace.sync.membership.machine import Removed, Start


class Unrepeated(RunObserver):
    """Says whose scripts begin anew: those that give `outpace.attach` nothing to keep.

    Args:
        resume: where the run goes on; None: it begins.
    """

    def __init__(self, log: Log, resume: ResumePoint | None = None) -> None:
        self._log = log
        self._lost = LostSince()
        if resume is not None:  # with those that a session before has lost since the checkpoint
            known = ResumePoint.of(resume.checkpoint, resume.experiment).recovery.updates_lost
            self._lost = LostSince(resume.number, resume.recovery.updates_lost - known)
        self._coordinator: Coordinator

    def attach(self, coordinator: Coordinator) -> None:
        """Say it of this attempt."""
        self._coordinator = coordinator
        coordinator.observers.append(self)

    def recovered(self, recovered: Start | Removed) -> None:
        if isinstance(recovered, Start) and recovered.worker in self._coordinator.unrepeatable:
            told = begin_anew([recovered.worker], "that the servers have")
            self._log(f"{told}: {REMEDY}")

    def since(self, point: ResumePoint, done: Mapping[int, int]) -> int:
        """Return the iterations since a checkpoint that scripts will not repeat as they were.

        Args:
            done: by worker, the iterations that it has completed.
        """
        if not point.checkpoint.index.anew:
            return 0
        return self._lost.then(point.number, point.unrepeated(done))

    def say_since(self, point: ResumePoint) -> None:
        """Say whose scripts begin anew now that all go back to a checkpoint."""
        if scripts := point.checkpoint.index.anew:
            self._log(f"{begin_anew(scripts, 'of the checkpoint')}: {REMEDY}")
