"""Notes what happens to a real run: in its event log, its trace and the counts of its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.config.experiment import Experiment
from outpace.engine.interruptions import Interruptions
from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.anew import REMEDY, LostSince, begin_anew
from outpace.real.coordinator.observers import RunObserver, Told
from outpace.real.coordinator.recovery.survival import GroupLost
from outpace.real.net.messages import JoinRun, ProcessDone
from outpace.real.net.sparse_log import Log
from outpace.record.event_log import LAUNCHER, EventLog, Level
from outpace.record.recovery import Recovery
from outpace.record.trace import Trace
from outpace.support.units import Time, seconds
from outpace.sync.membership import Loss, Removed, Start
from outpace.sync.messages import worker_name


class Noting(RunObserver):
    """Notes what happens to all attempts of a run.

    Args:
        recovery: the counts of the run, which are added to.

    Attributes:
        generations: of processes that were started again, by name.
    """

    def __init__(self, events: EventLog, trace: Trace, recovery: Recovery) -> None:
        self.events, self.recovery = events, recovery
        self._interruptions = Interruptions(trace, events, recovery)
        self.generations = self._interruptions.generations

    def told(self, name: str, told: Told) -> None:
        generation = self.generations.get(name, 0)
        if isinstance(told, JoinRun):
            self.events.add("joined", role=name, generation=generation, process=told.pid)
        elif isinstance(told, ProcessDone):
            self.events.add("finished", role=name, generation=generation)
        else:
            level: Level = "warning" if told.lost else "error"
            said = {"text": told.text, "kind": told.kind}
            self.events.add("failed", level, role=name, generation=generation, **said)

    def launched(self, processes: int) -> None:
        """So many processes were started for an attempt."""
        self.events.add("launched", role=LAUNCHER, processes=processes)

    def started(self) -> None:
        now = self._coordinator.clock.now
        self.events.add("training", time_s=seconds(now))
        self._interruptions.began_again(now)

    def began(self, worker: int) -> None:
        self._interruptions.began(worker, self._coordinator.clock.now)

    def survived(self, losses: Sequence[Loss]) -> None:
        coordinator = self._coordinator
        now, workers = coordinator.clock.now, coordinator.workers
        for loss in losses:
            lost_at = max(0, now - coordinator.roles.lost_for([loss.name], coordinator.kernel.now))
            self._interruptions.lost(loss, workers.index(loss.name), lost_at)

    def recovered(self, recovered: Start | Removed) -> None:
        if isinstance(recovered, Start):
            self._interruptions.restarted(recovered)
        else:
            self.recovery.without.append(recovered.worker)
            self._interruptions.removed(recovered, self._coordinator.clock.now)

    def not_restarted(self, worker: int) -> None:
        self.recovery.restarts -= 1
        name = worker_name(worker)
        self.events.add("not-restarted", role=name, generation=self.generations[name])

    # -- other numbers of processes ------------------------------------------------------

    def goes_over(self, point: ResumePoint, unrepeated: int) -> None:
        """All processes begin again from this checkpoint, in other numbers.

        unrepeated: iterations since the checkpoint that no script will repeat.
        """
        self.recovery.updates_lost = point.recovery.updates_lost + unrepeated

    def scaled(self, before: Experiment, present: Experiment, took_s: float) -> None:
        """They train."""
        self.recovery.scalings.append((present.workers, present.servers_in_run))
        self.events.add(
            "scaled",
            workers=present.workers,
            servers=present.servers_in_run,
            workers_before=before.workers,
            servers_before=before.servers_in_run,
            took_s=took_s,
        )

    # -- all processes begin again -----------------------------------------------------

    def group_lost(self, loss: GroupLost) -> None:
        """Processes are lost without which the others cannot go on."""
        for name in loss.names:
            self.events.add("lost", "warning", role=name, why=str(loss))

    def begins_anew(self, loss: GroupLost) -> None:
        """All processes are started again; the training had not begun."""
        self.recovery.restarts += 1
        self.events.add("begin-anew", "warning", cause=str(loss), restarts=self.recovery.restarts)

    def goes_back(
        self, loss: GroupLost, lost_at: Time, point: ResumePoint, unrepeated: int
    ) -> None:
        """All processes begin again at this checkpoint.

        lost_at: time of the run. unrepeated: iterations since the checkpoint that no script will
        repeat.
        """
        servers = _numbers(self._coordinator.servers, loss)
        workers = _numbers(self._coordinator.workers, loss)
        updates_lost = point.recovery.updates_lost + unrepeated
        anew = len(point.checkpoint.index.anew)
        self._interruptions.group_lost(
            str(loss), servers, workers, lost_at, point, updates_lost, anew
        )


def _numbers(names: Sequence[str], loss: GroupLost) -> list[int]:
    return [number for number, name in enumerate(names) if name in loss.names]


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
