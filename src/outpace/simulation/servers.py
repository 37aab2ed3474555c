"""The exchange of a run in virtual time with servers: real gradients on a simulated cluster.

It connects the programs of servers and workers with the kernel, the network, the shards and the
laws of the cluster. It makes no decisions about synchronization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.blocks.block import Block
from outpace.config.keys import SERVICE_TIMES
from outpace.engine.resuming import ResumePoint
from outpace.engine.servers import (
    has_scheduler,
    leaves_behind,
    scheduler_shard,
    server_program,
    worker_program,
)
from outpace.predict.interface import Model
from outpace.simulation.collective.precision import bytes_on_the_wire
from outpace.simulation.computing import WorkerLeft
from outpace.simulation.control import SimulationControl
from outpace.simulation.cutting_off import CutOffs
from outpace.simulation.faults.held_rows import CheckpointInMemory
from outpace.simulation.nodes import CutOffNode, ServerNode, WorkerNode
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.simulation.service_times import TimedServerNode
from outpace.simulation.virtual import Exchange, VirtualRun
from outpace.sync.checkpoint.state import scheduler_state
from outpace.sync.messages import SCHEDULER, Leave, Lost, Pause, server_name
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.programs.context import WorkerProgram
from outpace.sync.programs.cutoff import cut_off
from outpace.sync.programs.parameter_server import parameter_server
from outpace.sync.shard import Shard
from outpace.tasks import Workload


class Servers(Exchange[ServerSaving]):
    """The exchange of a run with servers.


    Args:
        new_block: returns the parameters of a server, given its number and its initial parameters.

    Attributes:
        shards: shards of the servers.
        cut_offs: makes the rule that cuts off iterations.
    """

    _saving: ServerSaving | None = None

    def __init__(
        self,
        run: VirtualRun,
        workload: Workload,
        new_block: Callable[[int, Block], ParameterBlock],
    ) -> None:
        self._run, self._workload, self._new_block = run, workload, new_block
        self._experiment = experiment = run.experiment
        initial = workload.initial_parameters()
        self._servers = [server_name(server) for server in range(experiment.servers)]
        self._sizes = [block.nbytes for block in initial]
        wire = experiment.policies.strategy.wire
        self._message_bytes = [bytes_on_the_wire(block, wire) for block in initial]
        self._workers: dict[int, WorkerNode] = {}  # by worker: the context of its program
        self._tells_pauses = leaves_behind(experiment)
        self._is_at_limit = False  # True once a worker has reached stop.iterations
        mailboxes = [run.network.join(server).mailbox for server in self._servers]
        self.control = SimulationControl(run, mailboxes)
        self.shards = self._new_shards(initial)
        self._scheduler = scheduler_shard(experiment, run.recorder)
        if run.resume is not None:
            self._restore(run.resume)
        self.cut_offs = CutOffs(run)

    def _new_shards(self, initial: Sequence[Block]) -> list[Shard]:
        """Return the shards of all servers with their initial parameters."""
        return [self._new_shard(server, block) for server, block in enumerate(initial)]

    def _new_shard(self, server: int, initial: Block) -> Shard:
        run, block = self._run, self._new_block(server, initial)
        policy, workers = self.control.policy(server), self._experiment.workers
        # All servers get the same settings of the workers' optimizers: one of them warns.
        updated, warn = (run.on_update, run.warn) if server == 0 else (None, None)
        return Shard(server, block, workers, policy, run.recorder, updated, warn)

    @property
    def _all_shards(self) -> list[Shard]:
        return [*self.shards, *([self._scheduler] if self._scheduler else [])]

    def _restore(self, point: ResumePoint) -> None:
        """Continue with the shards of a checkpoint. Raises ConfigError if it cannot be read."""
        for server, shard in enumerate(self.shards):
            shard.restore(point.state(server), point.now)
        if self._scheduler is not None:
            self._scheduler.restore(point.scheduler(), point.now)

    def run_time_model(self) -> Model | None:
        return self.cut_offs.model

    def parameters(self) -> list[Block]:
        return [shard.read() for shard in self.shards]

    @property
    def updates(self) -> int:
        return self.shards[0].version

    @property
    def changes(self) -> list[int]:
        return [shard.version for shard in self.shards]

    def waiting(self) -> list[str]:
        return [text for shard in self._all_shards if (text := shard.describe_waiting())]

    def close(self) -> None:
        for shard in self._all_shards:
            shard.close(self._run.kernel.now)

    # -- programs --------------------------------------------------------------

    def start(self, saving: ServerSaving | None) -> None:
        run, self._saving = self._run, saving
        self._start(None if run.resume is None else run.resume.first)

    def _start(self, first: Sequence[int] | None) -> None:
        """Start all programs.

        first: the iteration with which each worker begins if the run was resumed or restarted.
        """
        for server, name in enumerate(self._servers):
            look = None if self._saving is None else self._saving.look(server)
            program = server_program(self._experiment, look)(self._server_node(name, server))
            self._run.life.spawn(name, program, daemon=True)
        self._spawn_scheduler()
        gone = self._run.life.gone
        for worker in gone:
            for name in self._listeners:
                self._run.network.join(name).mailbox.put(Lost(worker, stays=False))
        for worker in range(self._experiment.workers):
            if worker not in gone:
                self.start_worker(worker, None if first is None else first[worker])

    def start_worker(self, worker: int, first: int | None) -> None:
        """Start the program of a worker. first: see `WorkerNode`."""
        node = WorkerNode(self._run, worker, self._servers, first)
        self._workers[worker] = node
        train = worker_program(self._experiment)
        program = self._train(train, node) if self._run.body.may_leave else train(node)
        self._run.life.spawn(node.name, program)

    async def _train(self, train: WorkerProgram, node: WorkerNode) -> None:
        """Run the program of a worker that may leave before its last iteration."""
        try:
            await train(node)
            self._is_at_limit = True
        except WorkerLeft:  # the program sends no more messages
            for name in self._listeners:
                node.send(name, Leave(node.worker))
        # At stop.iterations, late workers have taken fewer steps of their scripts. So they never
        # join the collectives in which others may wait for them.
        self._run.body.left(node.worker, is_over=self._tells_pauses and self._is_at_limit)

    @property
    def _listeners(self) -> list[str]:
        """The names of the servers, and of the scheduler if there is one."""
        return [*self._servers, *[SCHEDULER] * has_scheduler(self._experiment)]

    def pause(self, worker: int, *, over: bool = False) -> None:
        node = self._workers[worker]
        for name in self._listeners if self._tells_pauses else ():
            node.send(name, Pause(worker, over=over))

    def _server_node(self, name: str, server: int) -> ServerNode:
        """Return the context of the program of a server."""
        shard = self.shards[server]
        if any(getattr(self._experiment, key) is not None for key in SERVICE_TIMES):
            sizes = self._sizes[server], self._message_bytes[server]
            return TimedServerNode(self._run, name, shard, *sizes)
        return ServerNode(self._run, name, shard)

    def _spawn_scheduler(self) -> None:
        run, experiment = self._run, self._experiment
        if self._scheduler is not None:
            scheduler = ServerNode(run, SCHEDULER, self._scheduler)
            run.life.spawn(SCHEDULER, parameter_server(scheduler), daemon=True)
        elif (rule := self.cut_offs.rule) is not None:
            decider, first = CutOffNode(run), self.shards[0].clock
            ends = cut_off(decider, rule, experiment.workers, experiment.servers, first)
            run.life.spawn(SCHEDULER, ends, daemon=True)

    # -- failures --------------------------------------------------------------

    def shard_of(self, name: str) -> Shard | None:
        """Return the shard of a server or of the scheduler; None: it has none."""
        return self._scheduler if name == SCHEDULER else self.shards[self._servers.index(name)]

    def go_back(self, kept: CheckpointInMemory) -> None:
        """Reset the shards to a checkpoint; nothing runs until `start_again`."""
        self.shards[:] = self._new_shards(self._workload.initial_parameters())
        for shard, state in zip(self.shards, kept.states, strict=True):
            shard.restore(state, self._run.kernel.now)
        assert self._saving is not None
        self._saving.begin_again(kept)

    def start_again(self, kept: CheckpointInMemory) -> None:
        """Start all programs again, after `go_back`."""
        self._scheduler = scheduler_shard(self._experiment, self._run.recorder)
        if self._scheduler is not None:
            self._scheduler.restore(scheduler_state(kept.states), self._run.kernel.now)
        self._start(kept.first)
