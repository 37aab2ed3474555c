"""A run in virtual time with servers whose processes fail, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import structs

from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.cut_offs import with_history
from outpace.engine.interruptions import Interruptions
from outpace.engine.server_losses import ServerLosses
from outpace.engine.servers import AbortableProgram, scheduler_shard, worker_program
from outpace.errors import OutpaceError, RunError
from outpace.kernel import Future
from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.simulation.checkpoints import Saving
from outpace.simulation.control import SimulationControl
from outpace.simulation.faults.costs import Costs
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.faults.injection import Injection, Strike
from outpace.simulation.faults.processes import FailingWorker, Obedient, Process
from outpace.simulation.faults.saving import Kept, KeptSaving
from outpace.simulation.faults.undisturbed import undisturbed_rate
from outpace.simulation.faults.worker_losses import WorkerLosses
from outpace.simulation.nodes import CutOffNode, ServerNode, VirtualNode
from outpace.simulation.servers import Simulation
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.checkpoint.state import gaps, scheduler_state
from outpace.sync.membership import Removed, Start
from outpace.sync.messages import SCHEDULER, Lost, server_name, worker_name
from outpace.sync.shard import Shard
from outpace.tasks import Workload


class FailingSimulation(Simulation):
    """A run with servers and failures. Implements `Engine`.

    Each process is an object (`Process`), and what it sends is lost with it if it has not arrived.
    The loss of a worker is handled by the machine of real runs (`sync.membership`). After the loss
    of a server all processes begin again from the last checkpoint, which is in memory, and also in
    the folder of a run that has one. The trace, the sums and the metrics go back with it.
    """

    rows: HeldRows

    def _rows_for(self, trace: Trace) -> HeldRows:
        return HeldRows(trace)

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        assert experiment.faults is not None
        self._recovery = Recovery() if self.resume is None else self.resume.recovery
        self._repairs = experiment.faults.recovery
        self._costs = Costs(experiment.workers)
        self._interruptions = Interruptions(self.rows)
        self._processes: dict[str, Process] = {}
        self._obedient: dict[str, Obedient] = {}  # servers and scheduler
        self._failed_at: dict[str, Time] = {}  # processes that are lost: when they failed
        self._first: list[int | None] = [None] * experiment.workers
        if self.resume is not None:
            self._first = list(self.resume.first)
        self._numbers = {worker_name(n): n for n in range(experiment.workers)}
        self._servers = [server_name(server) for server in range(experiment.servers)]
        self._gone: set[int] = set()
        self._finished: set[int] = set()
        # When the last checkpoint was written, or all processes began again after that.
        self._worked_since: Time = self.kernel.now
        self.is_down = False  # all processes are about to begin again
        self._kept_saving: KeptSaving | None = None
        self._server_losses = ServerLosses(
            experiment.on_server_loss,
            can_restart=True,
            advises_checkpoint=experiment.checkpoint is None,
        )
        self._over = Future[None](self.kernel, "the end of the run")
        self._losses = WorkerLosses(experiment, self.kernel, self)
        super()._set_up(experiment, workload)
        self.kernel.spawn(self._wait_for_end(), "the coordinator")
        self._interruptions.began_again(self.kernel.now)
        workers, servers = experiment.workers, experiment.servers
        begin = self.kernel.now
        Injection(
            experiment.faults, self.kernel, experiment.seed, workers, servers, begin, self._strike
        )

    def _new_saving(
        self, settings: Checkpoint, workload: Workload, *, exact: bool
    ) -> Saving | None:
        saving = KeptSaving(self, workload, self._keeper, settings, exact)
        self._kept_saving = saving
        return saving

    # -- processes -----------------------------------------------------------------

    def _spawn_program(
        self, name: str, program: Coroutine[Any, Any, None], *, daemon: bool = False
    ) -> None:
        self._processes[name].walker = self.kernel.spawn(program, name, daemon=daemon)

    def _new_process(self, name: str) -> Process:
        if name in self._processes:
            self.network.cut(name)  # from what was sent to the one before
        process = self._processes[name] = Process(self.kernel, name)
        return process

    def _server_nodes(self, servers: Sequence[str]) -> list[ServerNode]:
        nodes = super()._server_nodes(servers)
        for node in nodes:
            self._make_obedient(node)
        return nodes

    def _scheduler_node(self, shard: Shard) -> ServerNode:
        node = super()._scheduler_node(shard)
        self._make_obedient(node)
        return node

    def _cut_off_node(self) -> CutOffNode:
        node = super()._cut_off_node()
        self._make_obedient(node)
        return node

    def _make_obedient(self, node: VirtualNode) -> None:
        self._obedient[node.name] = Obedient(self.kernel, node, self._new_process(node.name))

    def _train(
        self, train: AbortableProgram, worker: int, servers: Sequence[str]
    ) -> Coroutine[Any, Any, None]:
        process = self._new_process(worker_name(worker))
        return self._live(train, worker, servers, process)

    async def _live(
        self, train: AbortableProgram, worker: int, servers: Sequence[str], process: Process
    ) -> None:
        await train(FailingWorker(self, worker, servers, self._first[worker], process))
        process.has_finished = True
        self._finished.add(worker)
        self._losses.finished(worker)
        self._end_if_over()

    async def _wait_for_end(self) -> None:
        """Keep the run going while a worker is away."""
        await self._over

    def _end_if_over(self) -> None:
        done = len(self._finished | self._gone) == self.experiment.workers
        if done and not self._over.done:
            self._over.set(None)

    @property
    def shards(self) -> list[Shard]:
        return self._shards

    @property
    def servers_stand_until(self) -> Time:
        """Until when some server stands still (ns)."""
        return max(self._processes[name].until for name in self._servers)

    @property
    def all_servers_live(self) -> bool:
        return all(self._processes[name].alive for name in self._servers)

    def stand_still_to_write(self, server: int, size_bytes: int) -> Time:
        """Let a server write its part of a checkpoint; return how much longer all take for it."""
        writing = nanoseconds(self._repairs.writing_s(size_bytes))
        before = max(self.kernel.now, self.servers_stand_until)
        self._processes[server_name(server)].stand_still(writing)
        return max(0, self.servers_stand_until - before)

    def checkpoint_written(self, taken: Time) -> None:
        """A checkpoint is complete, for which the servers stood still for so long (ns)."""
        self._costs.add("checkpoints", taken, self.experiment.workers)
        self._worked_since = self.kernel.now

    # -- failures ------------------------------------------------------------------

    def _strike(self, strike: Strike) -> None:
        """Let a failure happen now, unless the process is not there."""
        process = self._processes[strike.node]
        if self.is_down or not process.alive or process.has_finished or self._over.done:
            return
        self._costs.happened(strike.kind)
        now, duration = self.kernel.now, strike.duration
        match strike.kind:
            case "crash":
                self._end(process)
                self._call_after(nanoseconds(self._repairs.detected_s), self._lose, process)
            case "pause":
                stood = process.stood
                process.stand_still(duration)
                if strike.node in self._numbers:
                    self._costs.add("standing", process.stood - stood)
                self._lose_if_silent(process, lambda: process.until)
            case "partition":
                obstacles = self.network.obstacles
                obstacles.partition(strike.node, now + duration)
                self._lose_if_silent(process, lambda: obstacles.until(strike.node))
            case "loss":
                self.network.obstacles.lose(strike.node, duration)
            case "slow":
                process.slow_down(strike.factor, now + duration)

    def _lose_if_silent(self, process: Process, until: Callable[[], Time]) -> None:
        """Count a process as lost if it is silent for the lease."""
        lease, began = nanoseconds(self._repairs.lease_s), self.kernel.now

        def look(_: object) -> None:
            if process.alive and until() > began + lease:
                self._end(process, began)
                self._lose(process, f"was silent for {self._repairs.lease_s:g} s")

        if until() > began + lease:
            self._call_after(lease, look)

    def _end(self, process: Process, failed: Time | None = None) -> None:
        """End a process. failed: when it failed; None: now."""
        process.end()
        self.network.cut(process.name)
        self._failed_at[process.name] = self.kernel.now if failed is None else failed

    def _call_after(self, delay: Time, function: Callable[[Any], None], what: Any = None) -> None:
        self.kernel.call_at(self.kernel.now + delay, function, what)

    def _lose(self, process: Process, how: str = "was killed by SIGKILL") -> None:
        """The coordinator knows that a process is lost."""
        if self._processes[process.name] is not process or self.is_down or self._over.done:
            return
        try:
            if process.name in self._numbers:
                self._lose_worker(self._numbers[process.name], how)
            else:
                self._lose_server(process, how)
        except OutpaceError as error:
            where = f"after {seconds(self.kernel.now):.6f} s of virtual time"
            raise type(error)(f"{error} ({where})") from error

    # -- lost workers --------------------------------------------------------------

    def _lose_worker(self, worker: int, how: str) -> None:
        failed = self._failed_at[worker_name(worker)]
        self._costs.worker_losses += 1
        self._costs.add("detection", self.kernel.now - failed)
        self._interruptions.lost(worker, failed)
        self._losses.lost(worker, how)

    def order(self, server: str, lost: Lost, obeyed: Callable[[], None]) -> None:
        self._obedient[server].order(lost, obeyed)

    def reached(self, server: str, worker: int) -> tuple[int, int]:
        if server == SCHEDULER:
            shard = self._scheduler
            return (-1, 0) if shard is None else (shard.watermark(worker), shard.clock)
        shard = self._shards[self._servers.index(server)]
        return shard.watermark(worker), shard.clock

    def can_start(self, worker: int) -> Time:
        return self.network.obstacles.until(worker_name(worker))

    def replaced(self, start: Start) -> None:
        self._recovery.restarts += 1
        self._recovery.updates_lost += start.lost
        self._interruptions.restarted(start.worker, start.first)
        name = worker_name(start.worker)
        computing, failed = self._processes[name].computing, self._failed_at[name]
        if computing is not None and computing[0] >= start.first:  # its push has not arrived
            self._costs.add("repeated", failed - computing[1])

    def begin(self, start: Start) -> None:
        worker, now = start.worker, self.kernel.now
        known = nanoseconds(self._repairs.detected_s)
        failed = self._failed_at.pop(worker_name(worker))
        self._costs.add("restart", now - failed - known)
        self._first[worker] = start.first
        self._interruptions.began(worker, now)
        program = self._train(worker_program(self.experiment), worker, self._servers)
        self._spawn_program(worker_name(worker), program)

    def removed(self, removed: Removed) -> None:
        self._recovery.updates_lost += removed.lost
        self._interruptions.removed(removed.worker, self.kernel.now)
        self._gone.add(removed.worker)
        self._end_if_over()

    # -- lost servers --------------------------------------------------------------

    def _lose_server(self, process: Process, how: str) -> None:
        """End all processes and begin again from the last checkpoint, or end the run."""
        kept = None if self._kept_saving is None else self._kept_saving.last
        number = 0 if kept is None else kept.number
        self._server_losses.require_way_on(RunError(f"{process.name} {how}"), number)
        assert kept is not None
        assert self._kept_saving is not None
        now, failed = self.kernel.now, self._failed_at[process.name]
        self._costs.server_losses += 1
        self._note_lost_time(failed)
        self.is_down = True
        self._losses.end()
        for each in self._processes.values():
            if each.alive:
                self._end(each)
        self._failed_at.clear()
        self._take_back(kept)
        lost = [self._servers.index(process.name)]
        self._interruptions.group_lost(lost, [], failed, kept)
        self._kept_saving.begin_again()
        ready = now + nanoseconds(self._repairs.servers_s)
        ready = max([ready, *map(self.network.obstacles.until, self._processes)])
        self._costs.add("restart", ready - now, self.experiment.workers)
        self.kernel.call_at(ready, self._begin_again, kept)

    def _note_lost_time(self, failed: Time) -> None:
        """Count what the workers that still ran have lost; the others' loss is known already."""
        now, workers = self.kernel.now, self.experiment.workers
        away = [self._failed_at[name] for name in self._numbers if name in self._failed_at]
        self._costs.add("detection", now - failed, workers - len(away))
        since = self._worked_since
        self._costs.add("repeated", failed - since, workers - len(away))
        for at in away:
            self._costs.add("repeated", at - since)
            self._costs.add("restart", now - at)

    def _take_back(self, kept: Kept) -> None:
        """Put the records and the shards back to a checkpoint."""
        self.settle(wait=True)
        self.rows.drop()
        totals = self.recorder.totals = Totals()
        totals.add(kept.totals)
        self.network.messages, self.network.bytes_sent = totals.messages, totals.bytes_sent
        self._done = sum(totals.iterations.values())
        self.metrics.take_up(kept.metrics)
        self._evaluated_at = None
        self._recovery.restarts += 1
        self._recovery.updates_lost = kept.recovery.updates_lost + gaps(kept.states)
        control = self._control
        assert isinstance(control, SimulationControl)
        policies = [control.policy(server) for server in range(len(self._shards))]
        self._shards[:] = self._new_shards(policies, self._workload.initial_parameters())
        for shard, state in zip(self._shards, kept.states, strict=True):
            shard.restore(state, self.kernel.now)

    def _begin_again(self, kept: Kept) -> None:
        """Start all processes again."""
        experiment, now = self.experiment, self.kernel.now
        self.is_down, self._worked_since = False, now
        self._finished.clear()
        self._gone.clear()
        self._first = list(kept.first)
        self._interruptions.began_again(now)
        self._losses = WorkerLosses(experiment, self.kernel, self)
        if self._scheduler is not None:
            scheduler = self._scheduler = scheduler_shard(experiment, self.recorder)
            assert scheduler is not None
            scheduler.restore(scheduler_state(kept.states), now)
        rule = None
        if experiment.cut_off is not None:
            before = self.rule_history
            rule = self.rule_history = with_history(self._rule(experiment.cut_off), None)
            if before is not None:
                rule.go_on(before.tensors(max(state.clock for state in kept.states)))
        self._spawn_servers(self._server_nodes(self._servers))
        self._spawn_scheduler(rule)
        train = worker_program(experiment)
        for index in range(experiment.workers):
            self._spawn_program(worker_name(index), self._train(train, index, self._servers))

    # -- the engine ----------------------------------------------------------------

    def run(self) -> None:
        super().run()
        self._costs.goodput = self._goodput()

    def _goodput(self) -> float | None:
        """Return the gradients per second, over those of the same run without failures."""
        rate = undisturbed_rate(self.experiment, self._workload, self.kernel.now)
        now_s = seconds(self.kernel.now)
        return self.totals.applied / now_s / rate if rate and now_s else None

    def times(self, host_s: float) -> dict[str, Any]:
        return {**super().times(host_s), "faults": self._costs.summary()}

    def recovery(self) -> Recovery:
        return structs.replace(self._recovery)
