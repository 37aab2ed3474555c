"""A run in virtual time with servers whose processes fail, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.cut_offs import with_history
from outpace.engine.servers import AbortableProgram, scheduler_shard, worker_program
from outpace.errors import RunError
from outpace.simulation.control import SimulationControl
from outpace.simulation.faults.failing import FailingRun
from outpace.simulation.faults.processes import FailingWorker, Obedient, Process
from outpace.simulation.faults.saving import Kept, KeptSaving
from outpace.simulation.faults.worker_losses import WorkerLosses
from outpace.simulation.nodes import CutOffNode, ServerNode, VirtualNode
from outpace.simulation.servers import Simulation
from outpace.support.units import Time, nanoseconds
from outpace.sync.checkpoint.state import gaps, scheduler_state
from outpace.sync.membership import Removed, Start
from outpace.sync.messages import SCHEDULER, Lost, SetPolicy, server_name, worker_name
from outpace.sync.shard import Shard
from outpace.tasks import Workload


class FailingSimulation(FailingRun, Simulation):
    """A run with servers and failures. Implements `Engine`.

    The loss of a worker is handled by the machine of real runs (`sync.membership`). After the loss
    of a server all processes begin again.
    """

    _saving: KeptSaving | None

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._prepare(experiment)
        self._obedient: dict[str, Obedient] = {}  # servers and scheduler
        self._first: list[int | None] = [None] * experiment.workers
        if self.resume is not None:
            self._first = list(self.resume.first)
        self._losses = WorkerLosses(experiment, self)
        super()._set_up(experiment, workload)
        self._begin_failures(experiment)

    def _new_saving(self, settings: Checkpoint) -> KeptSaving:
        return KeptSaving(self, self._workload, self._shards, self._keeper, settings)

    # -- processes -----------------------------------------------------------------

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
        process = self._new_process(node.name)
        self._obedient[node.name] = Obedient(self.kernel, node, process)

    def _train(
        self, train: AbortableProgram, worker: int, servers: Sequence[str]
    ) -> Coroutine[Any, Any, None]:
        process = self._new_process(worker_name(worker))
        return self._live(train, worker, servers, process)

    async def _live(
        self, train: AbortableProgram, worker: int, servers: Sequence[str], process: Process
    ) -> None:
        me = FailingWorker(self, worker, servers, self._first[worker], process)
        await train(me)
        process.has_finished = True
        self._finished.add(worker)
        self._losses.finished(worker)
        self._end_if_over()

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

    # -- lost workers --------------------------------------------------------------

    def _lose_process(self, process: Process, how: str) -> None:
        if process.name in self._numbers:
            self._lose_worker(self._numbers[process.name], how)
        else:
            self._lose_server(process, how)

    def _lose_worker(self, worker: int, how: str) -> None:
        failed = self._failed_at[worker_name(worker)]
        self._costs.worker_losses += 1
        self._costs.add("detection", self.kernel.now - failed)
        self._interruptions.lost(worker, failed)
        self._log_loss(worker_name(worker), how)
        self._losses.lost(worker, how)

    def order(self, server: str, lost: Lost, obeyed: Callable[[], None]) -> None:
        """Tell a server that a worker is lost; `obeyed` is called when it has processed this."""
        self._obedient[server].order(lost, obeyed)

    def reached(self, server: str, worker: int) -> tuple[int, int]:
        """Return the last iteration that a server has of a worker, and its clock."""
        if server == SCHEDULER:
            shard = self._scheduler
            return (-1, 0) if shard is None else (shard.watermark(worker), shard.clock)
        shard = self._shards[self._servers.index(server)]
        return shard.watermark(worker), shard.clock

    def can_start(self, worker: int) -> Time:
        """Return from when on another process of this worker can reach the servers (ns)."""
        return self.network.obstacles.until(worker_name(worker))

    def replaced(self, start: Start) -> None:
        """Note that another process is started for a worker."""
        self._recovery.restarts += 1
        self._recovery.updates_lost += start.lost
        self._interruptions.restarted(start.worker, start.first)
        name = worker_name(start.worker)
        self._generations[name] = start.generation
        self.events.add(
            "restarted",
            role=name,
            generation=start.generation,
            first=start.first,
            updates_lost=start.lost,
        )
        computing, failed = self._processes[name].computing, self._failed_at[name]
        if computing is not None and computing[0] >= start.first:  # its push has not arrived
            self._costs.add("repeated", failed - computing[1])

    def begin(self, start: Start) -> None:
        """Let the other process of a worker begin: it is ready."""
        worker, now = start.worker, self.kernel.now
        known = nanoseconds(self._repairs.detected_s)
        failed = self._failed_at.pop(worker_name(worker))
        self._costs.add("restart", now - failed - known)
        self._first[worker] = start.first
        self._interruptions.began(worker, now)
        program = self._train(worker_program(self.experiment), worker, self._servers)
        self._spawn_program(worker_name(worker), program)

    def removed(self, removed: Removed) -> None:
        """Go on without a worker."""
        self._recovery.updates_lost += removed.lost
        self._interruptions.removed(removed.worker, self.kernel.now)
        self._gone.add(removed.worker)
        self._end_if_over()

    # -- lost servers --------------------------------------------------------------

    def _lose_server(self, process: Process, how: str) -> None:
        """Go on from the last checkpoint with all processes, or end the run."""
        saving = self._saving
        kept = None if saving is None else saving.last
        loss, failed = RunError(f"{process.name} {how}"), self._failed_at[process.name]
        self._begin_all_again(loss, kept, failed, [self._servers.index(process.name)], [])

    def _restore_from(self, kept: Kept) -> None:
        self._losses.end()
        self._recovery.updates_lost += gaps(kept.states)
        control, saving = self._control, self._saving
        assert isinstance(control, SimulationControl)
        assert saving is not None
        self._policies = [control.policy(server) for server in range(len(self._shards))]
        self._shards[:] = self._new_shards(self._policies, self._workload.initial_parameters())
        for shard, state in zip(self._shards, kept.states, strict=True):
            shard.restore(state, self.kernel.now)
        saving.begin_again()

    def _begin_again(self, kept: Kept) -> None:
        experiment, now = self.experiment, self.kernel.now
        self._first = list(kept.first)
        self._losses = WorkerLosses(experiment, self)
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
        nodes, control = self._server_nodes(self._servers), self._control
        assert isinstance(control, SimulationControl)
        for server, node in enumerate(nodes):
            if (policy := control.policy(server)) is not self._policies[server]:
                node.mailbox.put(SetPolicy(policy))  # it changed while the server was away
        self._spawn_servers(nodes)
        self._spawn_scheduler(rule)
        train = worker_program(experiment)
        for index in range(experiment.workers):
            self._spawn_program(worker_name(index), self._train(train, index, self._servers))
