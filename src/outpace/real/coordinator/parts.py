"""Makes the parts of a coordinator and connects them with each other."""

from __future__ import annotations

import secrets
from pathlib import Path

from outpace.engine.scripts.sameness import SameGradients
from outpace.kernel import Kernel
from outpace.real.background import BackgroundThread
from outpace.real.coordinator.averaging.hosted_store import HostedStore
from outpace.real.coordinator.preparing import Preparation
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.recovery.survival import StartWorker, Survival
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.saving.checkpoints import Checkpoints, Content
from outpace.real.coordinator.saving.peer_models import PeerModels
from outpace.real.coordinator.saving.script_states import ScriptStates
from outpace.real.coordinator.saving.shards_and_scripts import ShardsAndScripts
from outpace.real.coordinator.scaling import Scaling
from outpace.real.coordinator.setting import Setting
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.coordinator.without_servers import WithoutServers, groups_of
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import FIRST, Handlers, Session, Transport, new_keys
from outpace.real.net.zeromq.transport import ZeroMQTransport
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.sync.messages import WireMessage, server_name, worker_name


class Parts:
    """The parts of the coordinator of one run.

    Args:
        start_worker: see `Survival`.
        origin: see `Coordinator`.

    Attributes:
        links: how each process reaches the coordinator, with keys and a number of this attempt, so
            nothing that is left of an earlier one can be heard.

    Raises:
        ConfigError: it cannot listen at the address.
    """

    def __init__(
        self, setting: Setting, start_worker: StartWorker, origin: int | None = None
    ) -> None:
        experiment, address = setting.experiment, setting.address
        self._setting = setting
        self.clock = RealClock(origin)
        self.kernel = Kernel(self.clock)
        workers = [worker_name(worker) for worker in range(experiment.workers)]
        servers = [server_name(server) for server in range(experiment.servers_in_run)]
        first_gradients = SameGradients(workers, setting.log_warning)
        names = [COORDINATOR, *servers, *workers]
        pairs = {name: new_keys() for name in names}
        keys = {name: pair.public for name, pair in pairs.items()}
        number, is_shared = secrets.randbits(62), experiment.shared_memory
        sessions = {
            name: Session(number, FIRST, setting.lease_s, pairs[name], is_shared) for name in names
        }
        self.transport: Transport = ZeroMQTransport(
            COORDINATOR, sessions[COORDINATOR], self.clock, setting.log
        )
        try:
            self.listener = self.transport.listen(
                address,
                {name: keys[name] for name in (*servers, *workers)},
                Handlers(
                    expect=lambda name, message: self.reports.expected(name, message),
                    on_message=lambda *received: self.reports.take(*received),
                    on_lost=lambda name: self.losses.connection_lost(name),
                ),
            )
            self._store: HostedStore | None = None
            if experiment.peers is not None or experiment.has_script:
                self._store = HostedStore(self.transport, address, workers, keys)
            store = "" if self._store is None else self._store.endpoint
            key = keys[COORDINATOR]
            self.links = {
                name: CoordinatorLink(name, self.listener.endpoint, key, session, store)
                for name, session in sessions.items()
            }
            launcher = setting.launcher(self.clock, self._process_ended, setting.on_output)
            run = self.run = RunState(setting, self.clock, self.kernel, self.listener, launcher)
            self.kept = self._kept()
            beside = BackgroundThread(self.clock).do
            number = 0 if setting.saving is None else setting.saving.keeper.last
            self.checkpoints: Checkpoints | None = None
            self.architecture: WithServers | WithoutServers
            if experiment.peers is None:
                content: Content = ShardsAndScripts(run, number)
            else:
                groups = groups_of(run)
                content = PeerModels(run, groups, number)
            if setting.saving is not None:
                self.checkpoints = Checkpoints(run, content, beside, self.kept)
            if experiment.peers is None:
                self.architecture = WithServers(run)
            else:
                self.architecture = WithoutServers(run, groups, self.checkpoints)
        except BaseException:
            self.transport.close()
            raise
        self.snapshots: Snapshots = self.architecture.snapshots
        self.survival = Survival(
            run, self.architecture, self.checkpoints, first_gradients, self.kept, start_worker
        )
        self.scaling = Scaling(run, self.survival, self.checkpoints)
        self.losses = Losses(run, self.survival)
        self.reports = Reports(
            run,
            self.architecture,
            self.losses,
            self.survival,
            first_gradients,
            self.checkpoints,
            self._announce,
        )
        self.preparation = Preparation(run, self.reports, self.kept, keys)

    def _kept(self) -> ScriptStates:
        """Return the object that sends scripts the states with which they continue."""
        setting = self._setting
        experiment, saving, resume = setting.experiment, setting.saving, setting.resume

        def last() -> Path | None:
            return None if saving is None else saving.keeper.folder

        return ScriptStates(experiment, self.listener, resume, last)

    def _process_ended(self, name: str, how: str) -> None:
        self.losses.process_ended(name, how)

    def close(self) -> None:
        """Close the connections, and what is still open."""
        self.kernel.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self.architecture.close()
        if self._store is not None:
            self._store.close()
        self.transport.close()

    def _announce(self, name: str, message: WireMessage) -> None:
        if not self.survival.take(name, message):
            self.run.announced.add(name, message)
