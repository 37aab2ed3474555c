"""The process of a worker without servers, which can be saved and sends its parameters.

`PeerWorker` runs the program of a strategy; `FollowingWorker` follows a script that averages its
gradients itself.
"""

from __future__ import annotations

from abc import abstractmethod

from outpace.config.experiment import Experiment
from outpace.real.net.messages import Plan, TakeSnapshot
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.versions import AwaitedVersions
from outpace.real.node.worker_process import WorkerProcess
from outpace.real.node.worker_saver import WorkerSaver
from outpace.sync.checkpoint.workers import Restored
from outpace.sync.messages import Leave, WireMessage


class AveragingWorker(WorkerProcess):
    """The process of a worker without servers.

    Attributes:
        saver: saves this worker's part of checkpoints, and restores it.
        version: version of the parameters.
        first_iteration: the iteration that this worker begins with, once the plan is known.
    """

    saver: WorkerSaver

    def __init__(self, link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
        super().__init__(link, worker, experiment)
        self.version = self.first_iteration = 0
        self.versions = AwaitedVersions(self.coordinator.send, self._reached, self._send_snapshot)
        self._is_in_run = False  # True from the start of the run until this worker leaves

    @property
    @abstractmethod
    def results(self) -> int:
        """The number of all-reduces whose results this worker has."""

    @abstractmethod
    def _send_snapshot(self, request: int) -> None:
        """Send the parameters to the coordinator. request: see `Snapshot`."""

    @abstractmethod
    def _end_training(self) -> None:
        """Join no more averages, and send this worker's part of the run's result."""

    def _resume(self, plan: Plan) -> Restored:
        """Restore the checkpoint of the plan, if there is one; return its state."""
        self.first_iteration = plan.first[self.worker] if plan.first else 0
        before = self.restored(plan, self.saver, self.first_iteration)
        self.version = before.updates
        return before

    def send_result(self) -> None:
        """Leave the training, unless this worker has left it or the run has not begun."""
        if self._is_in_run:
            self._end_training()  # handles messages about running exchanges
            self._is_in_run = False
            self.coordinator.send(Leave(self.worker))

    def finish(self) -> None:
        self.send_result()
        super().finish()

    def _reached(self) -> tuple[int, int]:
        return self.version, self.results

    def _order(self, peer: str, message: WireMessage) -> None:
        if isinstance(message, TakeSnapshot):
            self.versions.ask(message)
        elif not self.saver.take(message):
            super()._order(peer, message)
