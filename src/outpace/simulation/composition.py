"""Composes runs in virtual time: a body, an exchange, a life, and what takes checkpoints.

Each is chosen by itself: who computes a gradient (a task, a script), how values are combined
(servers, averages, the script's own collectives), and what happens to the processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.scripts.optimizers import require_followable
from outpace.optim import Optimizer
from outpace.record.event_log import EventLog
from outpace.record.trace import Trace
from outpace.simulation.checkpoints import Saving
from outpace.simulation.computing import Body
from outpace.simulation.executors.gradients import Gradients
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.faults.peer_failures import PeerFailures
from outpace.simulation.faults.server_failures import ServerFailures
from outpace.simulation.life import Life
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_models import PeerModels, TaskBlocks
from outpace.simulation.peers import Peers, routes_of
from outpace.simulation.scripts.body import ScriptBody, ScriptModels
from outpace.simulation.scripts.collectives.run import Followed
from outpace.simulation.scripts.server_blocks import ServerBlocks
from outpace.simulation.scripts.without_servers.blocks import ScriptBlocks
from outpace.simulation.scripts.without_servers.models import ScriptPeerModels
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.simulation.servers import Servers
from outpace.simulation.virtual import Exchange, VirtualRun
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.tasks import Workload

S = TypeVar("S", bound=Saving)


def simulation_of(
    experiment: Experiment,
    workload: Workload,
    trace: Trace,
    *,
    keeper: CheckpointKeeper | None = None,
    events: EventLog | None = None,
    **options: Any,
) -> VirtualRun:
    """Return a run that has not begun.

    Args:
        workload: of the task; or what the scripts have attached.
        keeper: where checkpoints are kept; None: they are not, or in memory alone.
        events: is told of simulated failures.
        options: of `VirtualRun`.

    Raises:
        ConfigError: if the experiment does not fit its task, or the checkpoint cannot be read.
    """
    held = HeldRows(trace)
    # Without failures, or without checkpoints, nothing is taken back.
    is_held = experiment.faults is not None and experiment.checkpoint is not None
    run = VirtualRun(experiment, workload, trace, held if is_held else trace, **options)
    composition = _Composition(run, workload, keeper, held, events or EventLog())
    if isinstance(workload, ScriptWorkload):
        composition.of_script(workload)
    else:
        composition.of_task()
    return run


@dataclass(frozen=True, slots=True)
class _Composition:
    """Makes the parts of a run; for the arguments see `simulation_of` and `Failures`."""

    run: VirtualRun
    workload: Workload
    keeper: CheckpointKeeper | None
    held: HeldRows
    events: EventLog

    def of_task(self) -> None:
        """Compose the run of a task."""
        run, workload, strategy = self.run, self.workload, self.run.experiment.peers
        body = Gradients(run.experiment, workload, run.computed, run.share)
        if strategy is None:
            self._with_servers(body, self._new_block)
        else:
            blocks = TaskBlocks(workload, strategy, self._optimizer)
            self._with_peers(body, PeerModels(run, strategy, blocks))

    def of_script(self, workload: ScriptWorkload) -> None:
        """Compose the run of a script, which has attached, or trains with its own collectives."""
        run, optimizer, strategy = self.run, self._optimizer, self.run.experiment.peers
        if strategy is None:
            servers = ServerBlocks(run, workload)
            self._with_servers(ScriptBody(run, workload, servers), servers.new)
        elif workload.first.is_followed:
            require_followable(run.experiment)
            _, route = routes_of(run, strategy)
            body = ScriptBody(run, workload, ScriptModels(), route, strategy.all_reduce)
            exchange = Followed(run, workload, body)
            new_saving = partial(PeerSaving, run, exchange, workload, self.keeper, None)
            self._compose(body, exchange, Life(run), new_saving)
        else:
            blocks = ScriptBlocks(run, workload, strategy, optimizer)
            models = PeerModels(run, strategy, blocks)
            asked = ScriptPeerModels(models, blocks, workload.workers.processes)
            self._with_peers(ScriptBody(run, workload, asked), models)

    @property
    def _optimizer(self) -> Optimizer:
        return self.run.experiment.optimizer_in_run(self.workload.samples)

    def _new_block(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server, given its initial ones."""
        layers = layers_within(self.run.slices[server], self.workload.layers)
        return parameter_block(initial, self._optimizer, layers=layers)

    def _with_servers(self, body: Body, new_block: Callable[[int, Block], ParameterBlock]) -> None:
        run, exchange = self.run, Servers(self.run, self.workload, new_block)
        life = Life(run)
        if run.experiment.faults is not None:
            life = ServerFailures(run, exchange, self.held, self.events, simulation_of)
        new_saving = partial(ServerSaving, run, exchange, self.workload, self.keeper)
        self._compose(body, exchange, life, new_saving)

    def _with_peers(self, body: Body, models: PeerModels) -> None:
        run, exchange = self.run, Peers(self.run, models)
        life = Life(run)
        if run.experiment.faults is not None:
            life = PeerFailures(run, exchange, self.held, self.events, simulation_of)
        initial = models.blocks.initial
        new_saving = partial(PeerSaving, run, exchange, self.workload, self.keeper, initial)
        self._compose(body, exchange, life, new_saving)

    def _compose(
        self,
        body: Body,
        exchange: Exchange[S],
        life: Life,
        new_saving: Callable[[Life, Checkpoint], S],
    ) -> None:
        """Compose the run. new_saving: makes what takes checkpoints."""
        settings, saving = self.run.experiment.checkpoint, None
        if settings is not None and (self.keeper is not None or life.keeps_in_memory):
            saving = new_saving(life, settings)
        self.run.compose(body, exchange, life, saving)
