"""A run in virtual time with servers: real gradients on a simulated cluster.

Connects the programs of servers and workers with the kernel, the network, the shards and the
laws of the cluster. Nothing here decides about synchronization.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np

from outpace.blocks.block import Block
from outpace.config.experiment import SERVICE_TIMES, Experiment
from outpace.engine.cut_offs import cut_off_rule
from outpace.engine.servers import AbortableProgram, scheduler_shard, server_program, worker_program
from outpace.predict.interface import Model, Rule
from outpace.predict.models import Fitting, FittingAtOnce
from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.settings import CutOffSettings
from outpace.simulation.control import SimulationControl
from outpace.simulation.nodes import CutOffNode, ServerNode, WorkerNode
from outpace.simulation.rule_time import RuleClock, TimedFitting
from outpace.simulation.service_times import TimedServerNode
from outpace.simulation.virtual import VirtualRun
from outpace.support.notices import warn
from outpace.sync.messages import SCHEDULER, server_name, worker_name
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.sync.programs.cutoff import cut_off
from outpace.sync.programs.parameter_server import parameter_server
from outpace.sync.shard import Shard
from outpace.tasks import Workload


class Simulation(VirtualRun):
    """A run with servers. Implements `Engine`."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._followed = experiment.policies.initial()
        initial = workload.initial_parameters()
        self._sizes = [block.nbytes for block in initial]
        self._shards = [
            Shard(
                server,
                self._block(server, block),
                experiment.workers,
                self._followed[server].policy,
                self.recorder,
            )
            for server, block in enumerate(initial)
        ]
        self._scheduler = scheduler_shard(experiment, self.recorder)
        self._all_shards = [*self._shards, *([self._scheduler] if self._scheduler else [])]
        self._fitting: Fitting | None = None
        self._rule_clock: RuleClock | None = None
        self._spawn(experiment)

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
        super().close()

    # -- wiring ----------------------------------------------------------------

    def _spawn(self, experiment: Experiment) -> None:
        servers = [server_name(server) for server in range(experiment.servers)]
        serve = server_program(experiment)
        timed = any(getattr(experiment, key) is not None for key in SERVICE_TIMES)
        nodes = [
            TimedServerNode(self, name, shard, size) if timed else ServerNode(self, name, shard)
            for name, shard, size in zip(servers, self._shards, self._sizes, strict=True)
        ]
        # Before anything starts: a later policy or the rule may turn out to be impossible.
        self._control = SimulationControl(self, self._followed, [node.mailbox for node in nodes])
        rule = None if experiment.cut_off is None else self._rule(experiment.cut_off)
        for name, node in zip(servers, nodes, strict=True):
            self.kernel.spawn(serve(node), name, daemon=True)
        if self._scheduler is not None:
            scheduler = ServerNode(self, SCHEDULER, self._scheduler)
            self.kernel.spawn(parameter_server(scheduler), SCHEDULER, daemon=True)
        elif rule is not None:
            ends = cut_off(
                CutOffNode(self, self._rule_clock), rule, experiment.workers, experiment.servers
            )
            self.kernel.spawn(ends, SCHEDULER, daemon=True)
        train = worker_program(experiment)
        for index in range(experiment.workers):
            self.kernel.spawn(self._train(train, index, servers), worker_name(index))

    # -- where a script's run differs ----------------------------------------------

    def _block(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server."""
        return parameter_block(initial, self._optimizer, layers=self._layers_of[server])

    def _train(
        self, train: AbortableProgram, worker: int, servers: Sequence[str]
    ) -> Coroutine[Any, Any, None]:
        """Return the program of a worker."""
        return train(WorkerNode(self, worker, servers))

    def _rule(self, settings: CutOffSettings) -> Rule:
        """Return the rule that says when iterations are cut off."""
        experiment = self.experiment

        def truth() -> Seconds:
            """Return the run times of all workers in the iteration that begins now."""
            iteration, now = self.totals.closed, self.kernel.now
            workers = range(experiment.workers)
            return np.array([self.run_time(worker, iteration, now) for worker in workers])

        clock = self._rule_clock = RuleClock() if settings.rule_time == "measured" else None
        if settings.fitted_in_run:
            kind, seed = settings.model, experiment.seed
            self._fitting = (
                FittingAtOnce(kind, seed)
                if clock is None
                else TimedFitting(kind, seed, self.kernel, clock)
            )
        return cut_off_rule(
            experiment,
            settings,
            say=warn,
            fitting=self._fitting,
            truth=truth,
            clock=clock or (lambda: 0.0),
        )
