"""The coordinator: leads a run through its phases and collects its results.

It runs in the process that starts the others, even under `outpace serve`. Phases:

1. All processes join.
2. The servers get the plan and say that they can take parameters.
3. The workers get the plan, and worker 0 gives the servers its parameters.
4. All are ready. Each worker in turn measures the network to the servers, or all workers together
   measure all-reduces (`real/net/probes.py`). Then the time of the run begins.
5. All workers finish, or the coordinator tells them to stop because the time is over or the
   target accuracy is reached.
6. The servers send the final parameters.
7. The servers end once the workers have ended; scripts may continue to run after the training.

Every phase except the training has a time limit. `losses` explains what happens when a process is
lost.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from outpace.engine.scripts.sameness import SameGradients
from outpace.errors import RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.background import BackgroundThread
from outpace.real.coordinator.checkpoints import Checkpoints, Content
from outpace.real.coordinator.hosted_store import HostedStore
from outpace.real.coordinator.losses import Losses
from outpace.real.coordinator.peer_models import PeerModels
from outpace.real.coordinator.preparing import Preparation
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.scaling import Scaling
from outpace.real.coordinator.script_states import ScriptStates
from outpace.real.coordinator.setting import Setting
from outpace.real.coordinator.shards_and_scripts import ShardsAndScripts
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.coordinator.survival import StartWorker, Survival
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.coordinator.without_servers import WithoutServers, groups_of
from outpace.real.elastic.deciding import RunView
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import StopRun, TrainingDone
from outpace.real.net.transport import FIRST, Handlers, Session, Transport, new_keys
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.support.units import Time, nanoseconds
from outpace.sync.membership.events import TrainingBegan
from outpace.sync.messages import WireMessage, server_name, worker_name

WIND_DOWN_S: Final = 60.0  # seconds for a worker to reach the end of its step
EARLY_END_S: Final = 5.0  # the same in a run that ends early


class Coordinator:
    """The coordinator of one run.

    Args:
        start_worker: see `Survival`.
        origin: value of the monotonic clock when the time of the run began. None: the time begins
            with the training, at 0 or at the time of `setting.resume`.

    Attributes:
        links: how each process reaches the coordinator, with the keys and the number of this
            attempt, so messages of earlier attempts are not accepted.

    Raises:
        ConfigError: if it cannot listen at the address.
    """

    def __init__(
        self, setting: Setting, start_worker: StartWorker, origin: int | None = None
    ) -> None:
        experiment, address = setting.experiment, setting.address
        self.experiment, self._resume, self._origin = experiment, setting.resume, origin
        self.over = False
        self.clock = RealClock(origin)
        self.kernel = Kernel(self.clock)
        workers = self.workers = [worker_name(n) for n in range(experiment.workers)]
        servers = self.servers = [server_name(n) for n in range(experiment.servers_in_run)]
        first_gradients = SameGradients(workers, setting.log_warning)
        names = [COORDINATOR, *servers, *workers]
        pairs = {name: new_keys() for name in names}
        keys = {name: pair.public for name, pair in pairs.items()}
        attempt, is_shared = secrets.randbits(62), experiment.shared_memory
        sessions = {
            name: Session(attempt, FIRST, setting.lease_s, pairs[name], is_shared) for name in names
        }
        self._transport: Transport = ZeroMQTransport(
            COORDINATOR, sessions[COORDINATOR], self.clock, setting.log
        )
        try:
            self.listener = self._transport.listen(
                address,
                {name: keys[name] for name in (*servers, *workers)},
                Handlers(
                    expect=lambda name, message: self.reports.expected(name, message),
                    on_message=lambda *received: self.reports.take(*received),
                    on_lost=lambda name: self._losses.connection_lost(name),
                ),
            )
            self._store: HostedStore | None = None
            if experiment.peers is not None or experiment.has_script:
                self._store = HostedStore(self._transport, address, workers, keys)
            store = "" if self._store is None else self._store.endpoint
            key = keys[COORDINATOR]
            self.links = {
                name: CoordinatorLink(name, self.listener.endpoint, key, session, store)
                for name, session in sessions.items()
            }
            self.launcher = setting.launcher(self.clock, self._process_ended, setting.on_output)
            run = self.state = RunState(
                setting, self.clock, self.kernel, self.listener, self.launcher
            )
            keeper = None if setting.saving is None else setting.saving.keeper
            kept = ScriptStates(
                experiment,
                self.listener,
                setting.resume,
                lambda: None if keeper is None else keeper.folder,
            )
            beside = BackgroundThread(self.clock).do
            number = 0 if keeper is None else keeper.last
            self.checkpoints: Checkpoints | None = None
            self._architecture: WithServers | WithoutServers
            if experiment.peers is None:
                content: Content = ShardsAndScripts(run, number)
            else:
                groups = groups_of(run)
                content = PeerModels(run, groups, number)
            if setting.saving is not None:
                self.checkpoints = Checkpoints(run, content, beside, kept)
            if experiment.peers is None:
                self._architecture = WithServers(run)
            else:
                self._architecture = WithoutServers(run, groups, self.checkpoints)
        except BaseException:
            self._transport.close()
            raise
        self.snapshots: Snapshots = self._architecture.snapshots
        self.survival = Survival(
            run, self._architecture, self.checkpoints, first_gradients, kept, start_worker
        )
        self.scaling = Scaling(run, self.survival, self.checkpoints)
        self._losses = Losses(run, self.survival)
        self.reports = Reports(
            run,
            self._architecture,
            self._losses,
            self.survival,
            first_gradients,
            self.checkpoints,
            self._announce,
        )
        self._preparation = Preparation(run, self.reports, kept, keys)

    @property
    def started(self) -> bool:
        """True once the training has begun."""
        return self.state.table.has_begun

    @property
    def unrepeatable(self) -> Collection[int]:
        """Workers whose scripts would begin from their start after a resume."""
        return () if self.checkpoints is None else self.checkpoints.unrepeatable

    @property
    def awaited(self) -> tuple[str, list[str]]:
        """Text of the step that the run waits for, and the processes that have not done it."""
        return self.state.announced.awaited

    # -- the phases ------------------------------------------------------------------

    def run(self) -> None:
        """Lead the run to its end.

        Raises:
            RunError: if a process failed, is lost, or exceeded a time limit.
            ConfigError: if the workers do not fit together, or if one found an error in its
                configuration.
        """
        self._drive(self._conduct)

    def wind_down(self) -> None:
        """End the run early but in order: stop the workers and use the present parameters."""
        if self.started and not self.over:
            self.kernel.close()
            self.state.early = True
            self._drive(self._end_in_order)

    def end(self, reason: str) -> None:
        """Tell the workers to stop; from now on waiting for them is limited."""
        run = self.state
        if run.stop_reason is None:
            run.stop_reason = reason
            stop = StopRun(reason, run.early)
            self.state.announced.add(COORDINATOR, stop)
            for name in self.workers:
                if not run.table.role(name).has_finished:
                    self.listener.send(name, stop)

    def view(self) -> RunView:
        """Return the processes of the run."""
        run, table = self.state, self.state.table
        if not table.has_begun:
            has_checkpoint = self._resume is not None
            return RunView(self.workers, self.servers, may_grow=False, needs_places=has_checkpoint)
        return RunView(
            workers=[name for name in self.workers if name not in table.absent],
            servers=self.servers,
            may_grow=table.change is None and not run.is_ending and table.is_settled,
            needs_places=bool(table.returning),
        )

    def close(self) -> None:
        """Close the connections and the files that are still open."""
        self.kernel.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self._architecture.close()
        if self._store is not None:
            self._store.close()
        self._transport.close()

    def _process_ended(self, name: str, how: str) -> None:
        self._losses.process_ended(name, how)

    def _announce(self, name: str, message: WireMessage) -> None:
        if not self.survival.take(name, message):
            self.state.announced.add(name, message)

    def _drive(self, phases: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.kernel.catch_up()  # time limits count from now
        self.kernel.spawn(phases(), "the coordinator")
        try:
            with self.clock.interruptible():
                self.kernel.run()
        except WalkerError as error:
            raise error.error from None

    async def _conduct(self) -> None:
        await self._preparation.run()
        if self.checkpoints is not None and self._resume is None:
            self.checkpoints.save_start()
        self.kernel.catch_up()
        begin = self._begin_time()
        orders = self.state.members.take(TrainingBegan(), begin)
        self._architecture.start()
        for name in self.servers + self.workers:
            self.listener.send(name, self.state.go())
        self.state.setting.on_start()
        self.survival.carry_out(orders)
        if (limit_s := self.experiment.stop.virtual_time_s) is not None:
            at = max(begin, nanoseconds(limit_s))
            self.kernel.call_at(at, lambda _: self.end("its time is over"))
        evaluate = self.experiment.evaluate
        after = 0 if self._resume is None else self._resume.updates
        self.snapshots.schedule(self.kernel, evaluate.every_s, evaluate.every_updates, after)
        if self.checkpoints is not None:
            self.checkpoints.start()
        await self._finish(self.workers, WIND_DOWN_S, or_left=True)
        await self._hand_in(WIND_DOWN_S)
        if self.checkpoints is not None:  # some workers may wait until they are saved
            for name in self.state.awaited(self.checkpoints.waiting):
                self.listener.send(name, StopRun("the run is over"))
        self.state.stop_reason = None
        # After the training scripts have no time limit, for example to save the servers' optimizer
        # state. Then a time or an accuracy that ends the run sets no limit either.
        await self._finish(self.workers, limit_s=None)
        await self._end_servers(WIND_DOWN_S)
        self.over = True

    def _begin_time(self) -> Time:
        """Let the time of the run begin, unless it has begun; return the time."""
        if self._origin is None:
            begin = 0 if self._resume is None else self._resume.now
            self.clock.origin += self.kernel.now - begin
        self.kernel.set_time(self.clock.now)
        return self.kernel.now

    async def _end_in_order(self) -> None:
        self.end("the run ends early")
        # the run does not wait for a worker that is still in its step
        with contextlib.suppress(RunError):
            await self._finish(self.workers, EARLY_END_S)
        await self._hand_in(EARLY_END_S)
        await self._end_servers(EARLY_END_S)
        self.over = True

    async def _finish(
        self, names: list[str], limit_s: float | None, *, or_left: bool = False
    ) -> None:
        """Wait until these have finished; the limit counts from the time when the run must end.

        limit_s: None: no limit, except for lost processes. or_left: True: workers that have left
        the training need not have finished.
        """
        since: Time | None = None
        announced = self.state.announced
        while missing := [
            name
            for name in self.state.awaited(names)
            if not (or_left and announced.has_heard(name, TrainingDone))
        ]:
            if since is None and self.state.stop_reason is not None:
                since = self.kernel.now
            await announced.next(limit_s, since, "finish", missing)

    async def _hand_in(self, limit_s: float) -> None:
        """Complete or give up the open checkpoint, and wait for the servers' parameters."""
        if self.checkpoints is not None:
            self.checkpoints.end()
        self.state.stop_reason = self.state.stop_reason or "the workers have finished"
        self.snapshots.ask_for_last()
        since = self.kernel.now
        while self.servers and self.snapshots.final is None:
            if self.state.awaited(self.servers) != self.servers:
                break  # one of the servers cannot send its parameters
            await self.state.announced.next(limit_s, since, "hand in its parameters", self.servers)

    async def _end_servers(self, limit_s: float) -> None:
        """End the servers, and wait for the rest of their trace."""
        self.state.stop_reason = self.state.stop_reason or "the workers have finished"
        for name in self.servers:
            self.listener.send(name, StopRun("the run is over"))
        await self._finish(self.servers, limit_s)
