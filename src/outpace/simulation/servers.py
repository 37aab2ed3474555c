"""A run in virtual time with servers: real gradients on a simulated cluster.

Connects the programs of servers and workers with the kernel, the network, the shards and the
laws of the cluster. Nothing here decides about synchronization.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from outpace.blocks.block import Block
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.config.keys import SERVICE_TIMES
from outpace.engine.cut_offs import cut_off_rule, with_history
from outpace.engine.resuming import ResumePoint
from outpace.engine.servers import (
    AbortableProgram,
    scheduler_shard,
    server_program,
    worker_program,
)
from outpace.errors import ConfigError, RunError
from outpace.predict.interface import Model, Rule
from outpace.predict.models import Fitting, FittingAtOnce
from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.history import History
from outpace.predict.rules.settings import CutOffSettings
from outpace.simulation.collective.precision import bytes_on_the_wire
from outpace.simulation.control import SimulationControl
from outpace.simulation.nodes import CutOffNode, ServerNode, WorkerNode
from outpace.simulation.rule_time import RuleClock, TimedFitting
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.simulation.service_times import TimedServerNode
from outpace.simulation.virtual import VirtualRun
from outpace.support.notices import warn
from outpace.sync.conditions import Conditioned
from outpace.sync.messages import SCHEDULER, server_name, worker_name
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.sync.policy import Policy
from outpace.sync.programs.cutoff import cut_off
from outpace.sync.programs.parameter_server import parameter_server
from outpace.sync.shard import Shard
from outpace.tasks import Workload


class Simulation(VirtualRun):
    """A run with servers. Implements `Engine`."""

    _saving: ServerSaving | None

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._followed = self._policies_now(experiment)
        initial = workload.initial_parameters()
        self._sizes = [block.nbytes for block in initial]
        wire = experiment.policies.strategy.wire
        self._message_bytes = [bytes_on_the_wire(block, wire) for block in initial]
        self._shards = self._new_shards([followed.policy for followed in self._followed], initial)
        self._scheduler = scheduler_shard(experiment, self.recorder)
        if self.resume is not None:
            self._restore(self.resume)
        self._set_up_saving()
        self._fitting: Fitting | None = None
        self._rule_clock: RuleClock | None = None
        self.rule_history: History | None = None  # of the rule that cuts iterations off
        self._spawn(experiment)

    def _new_shards(self, policies: Sequence[Policy], initial: Sequence[Block]) -> list[Shard]:
        """Return the shards of all servers with their initial parameters."""
        return [
            self._new_shard(server, policies[server], block) for server, block in enumerate(initial)
        ]

    def _new_shard(self, server: int, policy: Policy, initial: Block) -> Shard:
        block = self._block(server, initial)
        return Shard(server, block, self.experiment.workers, policy, self.recorder)

    def _new_saving(self, settings: Checkpoint) -> ServerSaving:
        return ServerSaving(self, self._workload, self._shards, self._keeper, settings)

    @property
    def _all_shards(self) -> list[Shard]:
        return [*self._shards, *([self._scheduler] if self._scheduler else [])]

    def _policies_now(self, experiment: Experiment) -> list[Conditioned]:
        """Return each server's policy at the beginning, with the changes before a checkpoint."""
        followed = experiment.policies.initial()
        for time, server, policy in experiment.policies.later() if self.resume else ():
            if time <= self.kernel.now:
                followed[server] = replace(followed[server], base=policy)
        return followed

    def _restore(self, point: ResumePoint) -> None:
        """Go on with the shards of a checkpoint. Raises ConfigError if it cannot be read."""
        try:
            for server, shard in enumerate(self._shards):
                shard.restore(point.state(server), point.now)
        except OSError as error:
            raise ConfigError(f"{point.path}: {error}") from error
        if self._scheduler is not None:
            self._scheduler.restore(point.scheduler(), point.now)

    def run_time_model(self) -> Model | None:
        return None if self._fitting is None else self._fitting.model

    def parameters(self) -> list[Block]:
        return [shard.read() for shard in self._shards]

    @property
    def updates(self) -> int:
        return self._shards[0].version

    @property
    def _changes(self) -> list[int]:
        return [shard.version for shard in self._shards]

    def _waiting(self) -> list[str]:
        return [text for shard in self._all_shards if (text := shard.describe_waiting())]

    def close(self) -> None:
        for shard in self._all_shards:
            shard.close(self.kernel.now)
        if self._saving is not None:
            self._saving.close()
        super().close()

    # -- wiring ----------------------------------------------------------------

    def _spawn(self, experiment: Experiment) -> None:
        servers = [server_name(server) for server in range(experiment.servers)]
        nodes = self._server_nodes(servers)
        # Before anything starts: a later policy may turn out to be impossible.
        self._control = SimulationControl(self, self._followed, [node.mailbox for node in nodes])
        rule = None if experiment.cut_off is None else self._rule(experiment.cut_off)
        if rule is not None and (self._saving is not None or self.resume is not None):
            rule = self.rule_history = with_history(rule, self.resume)
        self._spawn_servers(nodes)
        self._spawn_scheduler(rule)
        train = worker_program(experiment)
        for index in range(experiment.workers):
            self._spawn_program(worker_name(index), self._train(train, index, servers))

    def _server_nodes(self, servers: Sequence[str]) -> list[ServerNode]:
        """Return the contexts of the servers' programs."""
        return [self._server_node(name, server) for server, name in enumerate(servers)]

    def _server_node(self, name: str, server: int) -> ServerNode:
        """Return the context of the program of a server."""
        shard = self._shards[server]
        if any(getattr(self.experiment, key) is not None for key in SERVICE_TIMES):
            sizes = self._sizes[server], self._message_bytes[server]
            return TimedServerNode(self, name, shard, *sizes)
        return ServerNode(self, name, shard)

    def _spawn_servers(self, nodes: Sequence[ServerNode]) -> None:
        for node in nodes:
            self._spawn_server(node)

    def _spawn_server(self, node: ServerNode) -> None:
        look = None if self._saving is None else self._saving.look(node.shard.index)
        program = server_program(self.experiment, look)(node)
        self._spawn_program(node.name, program, daemon=True)

    def _spawn_scheduler(self, rule: Rule | None) -> None:
        """Start the scheduler, if there is one. rule: which cuts iterations off."""
        experiment = self.experiment
        if self._scheduler is not None:
            scheduler = self._scheduler_node(self._scheduler)
            self._spawn_program(SCHEDULER, parameter_server(scheduler), daemon=True)
        elif rule is not None:
            decider, first = self._cut_off_node(), self._shards[0].clock
            ends = cut_off(decider, rule, experiment.workers, experiment.servers, first)
            self._spawn_program(SCHEDULER, ends, daemon=True)

    # -- where runs of scripts, and runs with faults, differ -------------------------

    def _spawn_program(
        self, name: str, program: Coroutine[Any, Any, None], *, daemon: bool = False
    ) -> None:
        """Start the program of a server, a worker or the scheduler."""
        self.kernel.spawn(program, name, daemon=daemon)

    def _scheduler_node(self, shard: Shard) -> ServerNode:
        return ServerNode(self, SCHEDULER, shard)

    def _cut_off_node(self) -> CutOffNode:
        return CutOffNode(self, self._rule_clock)

    def _block(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server."""
        return parameter_block(initial, self._optimizer, layers=self._layers_of[server])

    def _train(
        self, train: AbortableProgram, worker: int, servers: Sequence[str]
    ) -> Coroutine[Any, Any, None]:
        """Return the program of a worker."""
        first = None if self.resume is None else self.resume.first[worker]
        return train(WorkerNode(self, worker, servers, first))

    def _rule(self, settings: CutOffSettings) -> Rule:
        """Return the rule that says when iterations are cut off."""
        experiment = self.experiment

        def truth() -> Seconds:
            """Return the run times of all workers in the iteration that begins now."""
            iteration, now = self.totals.closed, self.kernel.now
            times = np.full(experiment.workers, np.nan)
            for worker in range(experiment.workers):
                # After the last iteration of a recording the scheduler opens one more, which no
                # worker computes; a worker that does compute it ends the run with this error.
                with suppress(RunError):
                    times[worker] = self.run_time(worker, iteration, now)
            return times

        clock = self._rule_clock = RuleClock() if settings.rule_time == "measured" else None
        if settings.fitted_in_run:
            self._fitting = FittingAtOnce(settings.model, experiment.seed, settings.ordered)
            if clock is not None:
                self._fitting = TimedFitting(self._fitting, self.kernel, clock)
        return cut_off_rule(
            experiment,
            settings,
            say=warn,
            fitting=self._fitting,
            truth=truth,
            clock=clock or (lambda: 0.0),
        )
