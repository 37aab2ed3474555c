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
from outpace.record.event_log import EventLog
from outpace.record.trace import Trace
from outpace.simulation.collective.precision import bytes_on_the_wire
from outpace.simulation.control import SimulationControl
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.server_failures import ServerFailures
from outpace.simulation.life import Life
from outpace.simulation.nodes import CutOffNode, ServerNode, WorkerNode
from outpace.simulation.rule_time import RuleClock, TimedFitting
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.simulation.service_times import TimedServerNode
from outpace.simulation.virtual import VirtualRun
from outpace.support.notices import warn
from outpace.sync.checkpoint.state import scheduler_state
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

    def _new_life(self, trace: Trace, events: EventLog) -> Life:
        if self.experiment.faults is None:
            return super()._new_life(trace, events)
        return ServerFailures(self, trace, events)

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._followed = self._policies_now(experiment)
        initial = workload.initial_parameters()
        self._servers = [server_name(server) for server in range(experiment.servers)]
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
        updated = self._on_update if server == 0 else None
        return Shard(server, block, self.experiment.workers, policy, self.recorder, updated)

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
        # Before anything starts: a later policy may turn out to be impossible.
        mailboxes = [self.network.join(server) for server in self._servers]
        self._control = SimulationControl(self, self._followed, mailboxes)
        self._start(None if self.resume is None else self.resume.first, self._new_rule(self.resume))

    def _start(self, first: Sequence[int] | None, rule: Rule | None) -> None:
        """Start all programs.

        Args:
            first: the iteration with which each worker begins in the middle of the run.
            rule: says when iterations are cut off; None: they are not.
        """
        for server, name in enumerate(self._servers):
            look = None if self._saving is None else self._saving.look(server)
            program = server_program(self.experiment, look)(self._server_node(name, server))
            self.life.spawn(name, program, daemon=True)
        self._spawn_scheduler(rule)
        for worker in range(self.experiment.workers):
            self.start_worker(worker, None if first is None else first[worker])

    def start_worker(self, worker: int, first: int | None) -> None:
        """Start the program of a worker. first: as in `WorkerNode`."""
        program = self._train(worker_program(self.experiment), worker, first)
        self.life.spawn(worker_name(worker), program)

    def _server_node(self, name: str, server: int) -> ServerNode:
        """Return the context of the program of a server."""
        shard = self._shards[server]
        if any(getattr(self.experiment, key) is not None for key in SERVICE_TIMES):
            sizes = self._sizes[server], self._message_bytes[server]
            return TimedServerNode(self, name, shard, *sizes)
        return ServerNode(self, name, shard)

    def _spawn_scheduler(self, rule: Rule | None) -> None:
        experiment = self.experiment
        if self._scheduler is not None:
            scheduler = ServerNode(self, SCHEDULER, self._scheduler)
            self.life.spawn(SCHEDULER, parameter_server(scheduler), daemon=True)
        elif rule is not None:
            decider, first = CutOffNode(self, self._rule_clock), self._shards[0].clock
            ends = cut_off(decider, rule, experiment.workers, experiment.servers, first)
            self.life.spawn(SCHEDULER, ends, daemon=True)

    # -- failures --------------------------------------------------------------

    def shard_of(self, name: str) -> Shard | None:
        """Return the shard of a server or of the scheduler; None: it has none."""
        return self._scheduler if name == SCHEDULER else self._shards[self._servers.index(name)]

    def go_back(self, kept: Kept) -> None:
        """Put the shards back to a checkpoint; nothing runs until `start_again`."""
        policies = [self._control.policy(server) for server in range(len(kept.states))]
        self._shards[:] = self._new_shards(policies, self._workload.initial_parameters())
        for shard, state in zip(self._shards, kept.states, strict=True):
            shard.restore(state, self.kernel.now)
        assert self._saving is not None
        self._saving.begin_again(kept)

    def start_again(self, kept: Kept) -> None:
        """Start all programs again, after `go_back`."""
        self._scheduler = scheduler_shard(self.experiment, self.recorder)
        if self._scheduler is not None:
            self._scheduler.restore(scheduler_state(kept.states), self.kernel.now)
        before, rule = self.rule_history, self._new_rule(None)
        if before is not None and self.rule_history is not None:
            self.rule_history.go_on(before.tensors(max(each.clock for each in kept.states)))
        self._start(kept.first, rule)

    # -- where runs of scripts differ --------------------------------------------

    def _block(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server."""
        return parameter_block(initial, self._optimizer, layers=self._layers_of[server])

    def _train(
        self, train: AbortableProgram, worker: int, first: int | None
    ) -> Coroutine[Any, Any, None]:
        """Return the program of a worker. first: as in `WorkerNode`."""
        return train(WorkerNode(self, worker, self._servers, first))

    def _new_rule(self, resume: ResumePoint | None) -> Rule | None:
        """Return the rule that says when iterations are cut off, if there is one.

        resume: the checkpoint whose observations it takes.
        """
        settings = self.experiment.cut_off
        if settings is None:
            return None
        rule = self._rule(settings)
        if self._saving is not None or self.resume is not None:
            rule = self.rule_history = with_history(rule, resume)
        return rule

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
