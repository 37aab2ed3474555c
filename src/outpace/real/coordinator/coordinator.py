"""The coordinator: leads a run through its phases and collects its results.

It runs in the process that starts the others, also under `outpace serve`. Phases:

1. All processes join.
2. The servers get the plan and say that they can take parameters.
3. The workers get the plan, and worker 0 gives the servers its parameters.
4. All are ready. Each worker in turn measures the way to the servers, or all together all-reduces
   (`real/net/probes.py`). Then the time of the run begins.
5. All workers finish, or the coordinator tells them to stop because the time is over or the
   target accuracy is reached.
6. The servers hand in the final parameters.
7. The servers end once the workers have ended, whose scripts may go on after the training.

Every phase but the training has a time limit. `losses` says what happens when a process is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final

import msgspec

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.redividing import require_same_workers
from outpace.engine.scripts.same_gradients import SameGradients
from outpace.errors import ConfigError, RunError
from outpace.kernel import Kernel, WalkerError
from outpace.predict.interface import Rule
from outpace.real.coordinator.checkpoints import CheckpointsOfServers
from outpace.real.coordinator.evaluation.snapshots import Evaluate, Snapshots
from outpace.real.coordinator.hosted_store import HostedStore
from outpace.real.coordinator.losses import Losses
from outpace.real.coordinator.observers import Observers
from outpace.real.coordinator.replacements import Processes, Replacements
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.base import Checkpoints, Saving
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.saving.of_workers import CheckpointsOfWorkers
from outpace.real.coordinator.saving.scripts import CheckpointsOfScripts
from outpace.real.coordinator.saving.writer import BesideWriter
from outpace.real.coordinator.waiting import Announcements
from outpace.real.coordinator.with_servers import SchedulerResources, WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net import probes
from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import (
    Go,
    JoinRun,
    ModelBuffers,
    Plan,
    ProbeDone,
    Ready,
    StartProbe,
    StopRun,
    TrainingDone,
)
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Handlers, Session, Transport
from outpace.real.net.zeromq.transport import LOOPBACK, ZeroMQTransport
from outpace.real.node.member import COORDINATOR, boot_id
from outpace.record.timing import Timing
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.support.units import Time, nanoseconds
from outpace.sync.membership.machine import Removed
from outpace.sync.messages import WireMessage, server_name, worker_name
from outpace.tasks import Script

JOIN_S: Final = 120.0  # for the slowest process to start and make its task
WIND_DOWN_S: Final = 60.0  # for a worker to come to the end of its step
EARLY_END_S: Final = 5.0  # the same in a run that ends early
_BEFORE: Final = "the run until its checkpoint"  # a name for its sums


class Coordinator:
    """The coordinator of one run.

    Args:
        keys: public key of each process; empty in an insecure run.
        evaluate: called with consistent snapshots of the parameters; it may call `end`.
        join_s: seconds for the processes to come through each phase before the training.
        address: of this machine, at which the processes reach it.
        rule: decides when an iteration is cut off; None if none is.
        warn: called with a line for each warning; None: `log`.
        timing: takes the times of messages and computations; None: they are dropped.
        saving: where checkpoints go; None: none are taken.
        resume: where the run goes on; None: it begins.
        origin: value of the monotonic clock when the time of the run began; None: it begins, or
            goes on at the time of `resume`.

    Raises:
        ConfigError: it cannot listen at the address.
    """

    def __init__(
        self,
        experiment: Experiment,
        session: Session,
        keys: dict[str, str],
        trace: Trace,
        evaluate: Evaluate,
        log: Log,
        join_s: float = JOIN_S,
        address: str = LOOPBACK,
        rule: Rule | None = None,
        warn: Log | None = None,
        timing: Timing | None = None,
        saving: Saving | None = None,
        resume: ResumePoint | None = None,
        origin: int | None = None,
    ) -> None:
        self.clock = RealClock()
        self.kernel = Kernel(self.clock)
        self.experiment, self.session = experiment, session
        self.workers = [worker_name(worker) for worker in range(experiment.workers)]
        self.servers = [server_name(server) for server in range(experiment.servers_in_run)]
        self.started = self.over = False
        self.observers = Observers()
        self.processes = Processes()
        self._replacements: Replacements | None = None  # in a run with servers, once it has begun
        self.checkpoints: Checkpoints | None = None
        self._join_s, self._keys, self._log = join_s, keys, log
        self._resume, self._origin = resume, origin
        self._first_gradients = SameGradients(self.workers, warn or log)
        self._announced = Announcements(self.kernel)
        self._ending: str | None = None  # why the workers must stop
        self._transport: Transport = ZeroMQTransport(COORDINATOR, session, self.clock, log)
        try:
            self.listener = self._transport.listen(
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
                self._store = HostedStore(self._transport, address, self.workers, keys)
            self.store = "" if self._store is None else self._store.endpoint
            totals_of: dict[str, Totals] = {}
            if resume is not None:
                totals_of[_BEFORE] = resume.totals
            self._kept = KeptScripts(
                experiment,
                self.listener,
                resume,
                lambda: None if saving is None else saving.keeper.folder,
            )
            self._architecture: WithServers | WithoutServers
            if experiment.peers is None:
                resources = SchedulerResources(
                    experiment, self.kernel, self.clock, self.listener, trace
                )
                self._architecture = WithServers(resources, totals_of, evaluate, rule, resume)
                if saving is not None:
                    given = experiment, self.kernel, self.listener, saving, totals_of, resume
                    if isinstance(experiment.task, Script):
                        write = BesideWriter(self.clock)
                        self.checkpoints = CheckpointsOfScripts(*given, write=write)
                    else:
                        self.checkpoints = CheckpointsOfServers(*given)
            else:
                if resume is not None and isinstance(experiment.task, Script):
                    require_same_workers(resume)
                peers = self._architecture = WithoutServers(
                    experiment, self.kernel, self.listener, evaluate, self.store, resume
                )
                if saving is not None:
                    saved = self.checkpoints = CheckpointsOfWorkers(
                        experiment,
                        self.kernel,
                        self.listener,
                        saving,
                        totals_of,
                        peers.groups,
                        resume,
                    )
                    peers.when_left = lambda name, lost: saved.leave(name, lost=lost)
        except ConfigError:
            self._transport.close()
            raise
        self.snapshots: Snapshots = self._architecture.snapshots
        go_on, announce = self._go_on_without, self._announce
        lease_s = session.lease_s
        self.losses = Losses(self.kernel, self.listener, self.servers, lease_s, go_on, announce)
        if isinstance(self._architecture, WithoutServers):
            self.losses.begin_again_after = self._begins_again_after
        self.losses.stood_still_s = lambda: self.clock.stood_still_s
        self.reports = Reports(
            self.listener,
            self._architecture,
            self.losses,
            announce,
            totals_of,
            trace,
            log,
            self._first_gradients,
            experiment.workers,
            Timing(lambda _: None) if timing is None else timing,
            self.checkpoints,
            self.observers,
        )

    @property
    def unrepeatable(self) -> Collection[int]:
        """Workers whose scripts begin anew when the run goes on from its last checkpoint."""
        return () if self.checkpoints is None else self.checkpoints.unrepeatable

    @property
    def awaited(self) -> tuple[str, list[str]]:
        """What the run waits for, and the processes that have not done it."""
        return self._announced.awaited

    # -- the phases ------------------------------------------------------------------

    def run(self) -> None:
        """Lead the run to its end.

        Raises:
            RunError: a process failed, is lost, or did not keep a time limit.
            ConfigError: the workers do not fit together, or one found its configuration wrong.
        """
        self._drive(self._conduct)

    def wind_down(self) -> None:
        """End the run early but in order: stop the workers and take the parameters as they are."""
        if self.started and not self.over:
            self.kernel.close()
            self.losses.early = True
            self._drive(self._end_in_order)

    def end(self, reason: str) -> None:
        """Tell the workers to stop; from now on waiting for them has a limit."""
        if self._ending is None:
            self._ending = reason
            if self.checkpoints is not None:
                self.checkpoints.stop()
            stop = StopRun(reason, self.losses.early)
            self._announced.add(COORDINATOR, stop)
            self._tell([name for name in self.workers if name not in self.losses.finished], stop)

    def close(self) -> None:
        self.kernel.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self._architecture.close()
        if self._store is not None:
            self._store.close()
        self._transport.close()

    def _drive(self, phases: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.kernel.catch_up()  # limits count from now
        self.kernel.spawn(phases(), "the coordinator")
        try:
            with self.clock.interruptible():
                self.kernel.run()
        except WalkerError as error:
            raise error.error from None

    async def _conduct(self) -> None:
        all_names, join_s = self.servers + self.workers, self._join_s
        all_say = self._announced.all
        await all_say(all_names, JoinRun, "join", join_s)
        first = [] if self._resume is None else self._resume.first
        plan = self.reports.make_plan(self.experiment, self._keys, first)
        if self.experiment.peers is not None and self._resume is not None:
            plan = msgspec.structs.replace(plan, resume=str(self._resume.path.absolute()))
        self._require_same_model(plan)
        self._tell(self.servers, plan)
        await all_say(self.servers, Ready, "be ready for the parameters", join_s)
        kept = self._kept.all()
        self._tell(self.workers, self._kept.announced(plan, kept))
        self._kept.send(kept)
        del kept  # as large as all that the scripts keep
        if self.reports.joined[self.workers[0]].buffer_bytes:
            await all_say(self.workers[:1], ModelBuffers, "send its buffers", join_s)
            buffers = self.reports.buffers
            assert buffers is not None
            self._tell(self.workers[1:], ModelBuffers(head_of(buffers)), buffers)
        await all_say(self.workers, Ready, "be ready", join_s)
        await all_say(self.servers, Ready, "have the parameters", join_s, times=2)
        if self.experiment.probe:
            await self._probe()
        if self.checkpoints is not None:
            self.checkpoints.prepare(plan, first=self._resume is None)
        self.kernel.catch_up()
        begin = self._begin_time()
        if isinstance(self._architecture, WithServers):
            self._replacements = self._new_replacements(self._architecture)
        self.started = True
        self._architecture.start()
        self._tell(all_names, self._go())
        self.observers.started()
        if (limit_s := self.experiment.stop.virtual_time_s) is not None:
            at = max(begin, nanoseconds(limit_s))
            self.kernel.call_at(at, lambda _: self.end("its time is over"))
        evaluate = self.experiment.evaluate
        after = 0 if self._resume is None else self._resume.updates
        self.snapshots.schedule(self.kernel, evaluate.every_s, evaluate.every_updates, after)
        if self.checkpoints is not None:
            self.checkpoints.start()
        await self._finish(self.workers, WIND_DOWN_S, or_left=True)
        self._end_checkpoints()
        await self._hand_in(WIND_DOWN_S)
        if isinstance(self.checkpoints, CheckpointsOfWorkers):  # some wait, to be saved
            names = self.losses.awaited(self.checkpoints.waiting)
            self._tell(names, StopRun("the run is over"))
        self._ending = None
        # After the training scripts take what time they need, for example to save the servers'
        # optimizer state. A time or an accuracy that ends the run then sets no limit.
        await self._finish(self.workers, limit_s=None)
        await self._end_servers(WIND_DOWN_S)
        self.over = True

    def _begin_time(self) -> Time:
        """Let the time of the run begin, or go on; return it."""
        if self._origin is not None:
            self.clock.origin = self._origin
        else:
            begin = 0 if self._resume is None else self._resume.now
            self.clock.origin += self.kernel.now - begin
        self.kernel.set_time(self.clock.now)
        return self.kernel.now

    async def _probe(self) -> None:
        """Have each worker in turn measure the way to the servers, or all together all-reduces."""
        if (strategy := self.experiment.peers) is not None:
            if not strategy.exchanges:
                self._tell(self.workers, StartProbe(nanoseconds(probes.PROBE_S)))
                await self._announced.all(self.workers, ProbeDone, "probe", self._join_s)
            return
        until = self.clock.now + nanoseconds(probes.PROBE_S)
        for n, name in enumerate(self.workers):
            budget = (until - self.clock.now) // (len(self.workers) - n)
            if budget <= 0:
                break
            self._tell([name], StartProbe(budget))
            await self._announced.all([name], ProbeDone, "probe the servers", self._join_s)

    async def _end_in_order(self) -> None:
        self.end("the run ends early")
        with contextlib.suppress(RunError):  # a worker still in its step is left behind
            await self._finish(self.workers, EARLY_END_S)
        self._end_checkpoints()
        await self._hand_in(EARLY_END_S)
        await self._end_servers(EARLY_END_S)
        self.over = True

    def _end_checkpoints(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.end()

    async def _hand_in(self, limit_s: float) -> None:
        """Wait for the servers' parameters."""
        self._ending = self._ending or "the workers have finished"
        self.snapshots.ask_for_last()
        since = self.kernel.now
        while self.servers and self.snapshots.final is None:
            if self.losses.awaited(self.servers) != self.servers:
                break  # one of them cannot hand in anything
            await self._announced.next(limit_s, since, "hand in its parameters", self.servers)

    async def _end_servers(self, limit_s: float) -> None:
        """End the servers, and wait for the rest of their trace."""
        self._ending = self._ending or "the workers have finished"
        self._tell(self.servers, StopRun("the run is over"))
        await self._finish(self.servers, limit_s)

    async def _finish(
        self, names: list[str], limit_s: float | None, *, or_left: bool = False
    ) -> None:
        """Wait until these have finished; the limit counts from when the run is to end.

        limit_s: None: no limit, apart from processes that are lost.
        or_left: workers that take no more part in the training need not have finished.
        """
        since: Time | None = None
        left = self.reports.left if or_left else set()
        while missing := [name for name in self.losses.awaited(names) if name not in left]:
            if since is None and self._ending is not None:
                since = self.kernel.now
            await self._announced.next(limit_s, since, "finish", missing)

    def _tell(self, names: list[str], message: WireMessage, block: Block | None = None) -> None:
        for name in names:
            self.listener.send(name, message, block)

    def _announce(self, name: str, message: WireMessage) -> None:
        replacements = self._replacements
        if replacements is None or not replacements.take(name, message):
            self._announced.add(name, message)

    def _new_replacements(self, servers: WithServers) -> Replacements:
        return Replacements(
            self.experiment,
            self._join_s,
            self.kernel,
            self.listener,
            servers,
            self.losses,
            self.reports,
            self.processes,
            self._has_lost,
            self._has_begun_again,
            self.observers,
            self._log,
            self._kept,
            self._go,
            lambda: None if self._ending is None else StopRun(self._ending, self.losses.early),
        )

    def _has_begun_again(self, worker: int) -> None:
        if self.checkpoints is not None:
            self.checkpoints.began(worker)
        self.observers.began(worker)

    def _require_same_model(self, plan: Plan) -> None:
        """Raise ConfigError if the workers train another model than at the checkpoint."""
        resume = self._resume
        if resume is None or tuple(plan.layers) == resume.checkpoint.index.layers:
            return
        before = resume.checkpoint.index.layers
        raise ConfigError(
            f"--resume: the model has {sum(plan.layers):,} parameters in {len(plan.layers)} "
            f"tensors, and {resume.checkpoint.name} has {sum(before):,} in {len(before)}: resume "
            "with the model that the run was made with"
        )

    def _go(self) -> Go:
        return Go(self.clock.origin, boot_id())

    def _go_on_without(self, lost: Mapping[str, RunError]) -> bool:
        goes_on = self._can_go_on(lost)
        if goes_on:
            self.observers.survived(lost)
            if isinstance(self._architecture, WithoutServers):
                for name in lost:  # no other process takes its place
                    self.observers.recovered(Removed(self.workers.index(name), 0))
        return goes_on

    def _can_go_on(self, lost: Mapping[str, RunError]) -> bool:
        """Bring lost processes back, or go on without them; False if that cannot be."""
        if not self.started or any(join.follows for join in self.reports.joined.values()):
            return False  # the collectives of scripts that follow concern all workers
        if self._replacements is not None:
            return self._replacements.take_losses(lost)
        architecture = self._architecture
        assert isinstance(architecture, WithoutServers)
        if any(map(self._begins_again_after, lost)):
            return False
        if self.experiment.on_worker_loss == "stop" or not architecture.can_spare(lost):
            return False
        for name, error in lost.items():
            self._log(f"{error}; the others go on without it")
            architecture.lose(name)
            self._has_lost(name)
        return True

    def _begins_again_after(self, name: str) -> bool:
        """True if all processes begin again after the loss of this worker, without servers.

        A worker that ends itself would do so again.
        """
        if self.experiment.on_worker_loss != "restart" or self.processes.start is None:
            return False
        is_saved = self.checkpoints is not None and self.checkpoints.last > 0
        architecture = self._architecture
        assert isinstance(architecture, WithoutServers)
        over = self._ending is not None or architecture.has_left(name)
        return is_saved and not over and not self.losses.has_exited(name)

    def _has_lost(self, name: str) -> None:
        """The run goes on without this worker."""
        self.processes.kill(name)
        if self.checkpoints is not None:
            self.checkpoints.left(name, ended=False)
        self._first_gradients.has_left(name)
        self._announced.add(name, TrainingDone())
