"""Makes the parts of a coordinator and connects them with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from outpace.engine.scripts.same_gradients import SameGradients
from outpace.errors import ConfigError
from outpace.kernel import Kernel
from outpace.real.background import BackgroundThread
from outpace.real.coordinator.architecture import new_architecture, new_checkpoints
from outpace.real.coordinator.averaging.hosted_store import HostedStore
from outpace.real.coordinator.ending import Ending
from outpace.real.coordinator.observers import Observers
from outpace.real.coordinator.preparing import Preparation
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.recovery.processes import Processes
from outpace.real.coordinator.recovery.replacements import Replacements
from outpace.real.coordinator.recovery.survival import Survival
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.given_files import GivenFiles
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.saving.open import SavedRun
from outpace.real.coordinator.scaling import Scaling
from outpace.real.coordinator.setting import CoordinatorSetting
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.coordinator.waiting import Announcements
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.elastic.view import RunView
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Go
from outpace.real.net.report_messages import ProcessFailed
from outpace.real.net.transport import Handlers, Transport
from outpace.real.net.zeromq.transport import ZeroMQTransport
from outpace.real.node.member import COORDINATOR
from outpace.record.totals import Totals
from outpace.support.machine import boot_id
from outpace.sync.messages import WireMessage, server_name, worker_name
from outpace.tasks import Script

_BEFORE: Final = "the run until its checkpoint"  # a name for its sums


class Parts:
    """The parts of the coordinator of one run.

    Attributes:
        store: endpoint of the store through which processes find each other; empty: there is none.

    Raises:
        ConfigError: it cannot listen at the address.
    """

    def __init__(self, setting: CoordinatorSetting) -> None:
        experiment, resume, log = setting.experiment, setting.resume, setting.log
        keys, address = setting.keys, setting.address
        self._setting = setting
        self.clock = RealClock()
        self.kernel = Kernel(self.clock)
        self.workers = [worker_name(worker) for worker in range(experiment.workers)]
        self.servers = [server_name(server) for server in range(experiment.servers_in_run)]
        self.observers = Observers()
        self._replacements: Replacements | None = None  # in a run with servers that has begun
        self.processes = Processes()
        first_gradients = SameGradients(self.workers, setting.log_warning)
        self.announced = Announcements(self.kernel)
        self.transport: Transport = ZeroMQTransport(COORDINATOR, setting.session, self.clock, log)
        try:
            self.listener = self.transport.listen(
                address,
                {name: keys.get(name, "") for name in (*self.servers, *self.workers)},
                Handlers(
                    expect=lambda name, message: self.reports.expected(name, message),
                    on_message=lambda *received: self.reports.take(*received),
                    on_lost=lambda name: self.losses.connection_lost(name),
                ),
            )
            self._store: HostedStore | None = None
            if experiment.peers is not None or isinstance(experiment.task, Script):
                self._store = HostedStore(self.transport, address, self.workers, keys)
            self.store = "" if self._store is None else self._store.endpoint
            totals_of: dict[str, Totals] = {}
            if resume is not None:
                totals_of[_BEFORE] = resume.totals
            self.kept = self._kept()
            beside = BackgroundThread(self.clock).do
            self.given: GivenFiles | None = None  # if the processes do not see the folder
            if self._copies:
                self.given = GivenFiles(experiment, self.listener, beside, self._failed)
            self.architecture = new_architecture(
                setting, self.kernel, self.clock, self.listener, totals_of, self.store
            )
            self.checkpoints: Checkpoints | None = None
            if setting.saving is not None:
                saved = SavedRun(
                    experiment,
                    self.kernel,
                    self.listener,
                    setting.saving,
                    totals_of,
                    resume,
                    beside,
                    self._copies,
                )
                self.checkpoints = new_checkpoints(saved, self.architecture, self.kept.sent)
        except BaseException:
            self.transport.close()
            raise
        self.scaling = Scaling(experiment, self.kernel, self.checkpoints, self.processes, log)
        self.snapshots: Snapshots = self.architecture.snapshots
        self.losses = Losses(
            self.kernel,
            self.listener,
            self.servers,
            setting.session.lease_s,
            lambda lost: self.survival.go_on_without(lost),
            self._announce,
        )
        self.losses.stood_still_s = lambda: self.clock.stood_still_s
        self.reports = Reports(
            self.listener,
            self.architecture,
            self.losses,
            self._announce,
            totals_of,
            setting.trace,
            log,
            first_gradients,
            experiment.workers,
            setting.timing,
            self.checkpoints,
            self.observers,
            setting.log_warning,
        )
        self.survival = Survival(
            experiment,
            self.workers,
            self.architecture,
            self.losses,
            self.reports,
            self.checkpoints,
            first_gradients,
            self.announced,
            self.processes,
            self.observers,
            log,
            lambda: self.ending.reason is not None,
        )
        self.ending = Ending(
            self.servers,
            self.workers,
            self.kernel,
            self.listener,
            self.losses,
            self.reports,
            self.announced,
            self.snapshots,
            self.checkpoints,
        )
        self.preparation = Preparation(
            experiment,
            self.servers,
            self.workers,
            keys,
            self.clock,
            self.listener,
            self.reports,
            self.announced,
            self.kept,
            self.given,
            resume,
            setting.join_s,
            lambda names: self.processes.no_room(names),
        )

    def _kept(self) -> KeptScripts:
        """Return the object that sends scripts the states with which they go on."""
        setting = self._setting
        experiment, saving, resume = setting.experiment, setting.saving, setting.resume

        def last() -> Path | None:
            return None if saving is None else saving.keeper.folder

        return KeptScripts(experiment, self.listener, resume, last)

    @property
    def _copies(self) -> bool:
        """True if processes that save do not see the folder of the run."""
        experiment = self._setting.experiment
        task = experiment.task
        is_elsewhere = isinstance(task, Script) and task.is_elsewhere
        return self._setting.copies or (experiment.peers is not None and is_elsewhere)

    def _failed(self, name: str, why: str) -> None:
        """A process cannot go on, as if it had found that out itself."""
        self.losses.process_failed(name, ProcessFailed("RunError", f"{name} {why}"))

    def close(self) -> None:
        """Close the connections, and what is still open."""
        self.kernel.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self.architecture.close()
        if self._store is not None:
            self._store.close()
        self.transport.close()

    def view(self) -> RunView | None:
        """See `Coordinator.view`."""
        if not self.survival.has_begun:
            return None
        is_busy = bool(
            self.scaling.is_under_way or self.reports.left or self.ending.reason is not None
        )
        replacements = self._replacements
        if replacements is None:
            return RunView(workers=self.workers, servers=[], is_busy=is_busy)
        absent = replacements.absent
        return RunView(
            workers=[name for name in self.workers if name not in absent],
            servers=self.servers,
            absent=absent,
            returning=replacements.coming_back,
            is_busy=is_busy or not replacements.is_settled,
        )

    def goes_without(self, worker: str) -> None:
        """See `Coordinator.goes_without`."""
        if self._replacements is None:
            raise ConfigError("workers: the training has not begun, or has no servers")
        self._replacements.goes_without(worker)

    def _announce(self, name: str, message: WireMessage) -> None:
        if self.given is not None and self.given.take(name, message):
            return
        if not self.survival.take(name, message):
            self.announced.add(name, message)

    def replacements(self) -> Replacements | None:
        """Return what replaces lost workers; None in a run without servers."""
        architecture = self.architecture
        if isinstance(architecture, WithServers):
            self._replacements = Replacements(
                self._setting.experiment,
                self._setting.join_s,
                self.kernel,
                self.listener,
                self.losses,
                self.reports,
                self.processes,
                self.survival.has_lost,
                self.survival.has_begun_again,
                self.observers,
                self._setting.log,
                self.kept,
                self.go,
                lambda: self.ending.order,
                lambda worker, stays: architecture.replace(worker, stays=stays),
            )
        return self._replacements

    def go(self) -> Go:
        """Return the order to start."""
        return Go(self.clock.origin, boot_id())
