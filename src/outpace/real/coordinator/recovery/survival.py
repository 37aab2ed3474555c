"""Decides whether a run goes on when it has lost processes, with others in their place or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outpace.config.experiment import Experiment
from outpace.engine.scripts.same_gradients import SameGradients
from outpace.engine.worker_losses import not_restarted
from outpace.errors import RunError
from outpace.real.coordinator.architecture import Architecture
from outpace.real.coordinator.observers import RunObserver
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.recovery.processes import Processes
from outpace.real.coordinator.recovery.replacements import Replacements
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.waiting import Announcements
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.messages import TrainingDone
from outpace.real.net.sparse_log import Log
from outpace.sync.membership.orders import Removed
from outpace.sync.messages import WireMessage


class Survival:
    """Brings lost processes back, or has the run go on without them.

    Args:
        workers: the names of all workers, in order.
        checkpoints: those of the run; None: none are taken.
        announced: is told of the workers that are no longer waited for.
        is_ending: returns True once the workers were told to stop.

    Attributes:
        has_begun: True once the training has begun.
    """

    def __init__(
        self,
        experiment: Experiment,
        workers: Sequence[str],
        architecture: Architecture,
        losses: Losses,
        reports: Reports,
        checkpoints: Checkpoints | None,
        first_gradients: SameGradients,
        announced: Announcements,
        processes: Processes,
        observer: RunObserver,
        log: Log,
        is_ending: Callable[[], bool],
    ) -> None:
        self._experiment, self._workers, self._architecture = experiment, workers, architecture
        self._losses, self._reports, self._checkpoints = losses, reports, checkpoints
        self._first_gradients, self._announced = first_gradients, announced
        self._processes, self._observer, self._log = processes, observer, log
        self._is_ending = is_ending
        self.has_begun = False
        self._replacements: Replacements | None = None  # once the training has begun
        losses.begin_again_after = self._begins_again_after
        losses.why_not_again = self._why_not_again

    def begin(self, replacements: Replacements | None) -> None:
        """The training begins. replacements: None if no worker is replaced alone."""
        self.has_begun, self._replacements = True, replacements

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a process that comes back."""
        return self._replacements is not None and self._replacements.take(name, message)

    def go_on_without(self, lost: Mapping[str, RunError]) -> bool:
        """Bring lost processes back, or go on without them; False if that cannot be."""
        goes_on = self._can_go_on(lost)
        if goes_on:
            self._observer.survived(lost)
        return goes_on

    def _can_go_on(self, lost: Mapping[str, RunError]) -> bool:
        if not self.has_begun:
            return False
        if self._replacements is not None:
            return self._replacements.take_losses(lost)
        architecture = self._architecture
        assert isinstance(architecture, WithoutServers)
        follows = any(join.follows for join in self._reports.joined.values())
        if not all(map(architecture.has_left, lost)) and (follows or not self._is_ending()):
            return False
        for name, error in lost.items():  # the training does not need it any more
            self._log(f"{error}; the run ends without it")
            architecture.lose(name)
            self.has_lost(name)
            self._observer.recovered(Removed(self._workers.index(name), 0))
        return True

    def _begins_again_after(self, name: str) -> bool:
        """True if all processes begin again after the loss of this one.

        It is a server, a worker without servers, or any process before the training begins. A
        worker that ends itself would do so again.
        """
        if name not in self._workers:
            return True
        if not self.has_begun and self.begins_anew(name):
            return True
        on_loss = self._experiment.on_worker_loss
        if not isinstance(self._architecture, WithoutServers) or on_loss == "stop":
            return False
        return on_loss == "continue" or not self._losses.has_exited(name)

    def begins_anew(self, name: str) -> bool:
        """True if all begin again as they began, after a loss before the training has begun."""
        on_loss = self._experiment.on_server_loss
        if name in self._workers:
            on_loss = "stop" if self._experiment.on_worker_loss == "stop" else "restart"
        can_be = self._processes.all_again and not self._losses.has_exited(name)
        return can_be and not self.has_begun and on_loss != "stop"

    def _why_not_again(self, name: str) -> str:
        if name not in self._workers or self._losses.has_exited(name) or self._is_ending():
            return ""
        return not_restarted(self._experiment)

    def has_lost(self, name: str) -> None:
        """The run goes on without this worker."""
        self._processes.kill(name)
        if self._checkpoints is not None:
            self._checkpoints.left(name, ended=False)
        self._first_gradients.has_left(name)
        self._announced.add(name, TrainingDone())

    def has_begun_again(self, worker: int) -> None:
        """The new process of this worker begins with its work."""
        if self._checkpoints is not None:
            self._checkpoints.began(worker)
        self._observer.began(worker)
