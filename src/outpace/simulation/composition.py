"""Composes runs in virtual time: a body, an exchange, a life, and what takes checkpoints.

Each is chosen by itself: what computes a gradient (a task, a script), how values are combined
(servers, averages, the script's own collectives), and what happens to the processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.engine.output import OnOutput
from outpace.engine.scripts.requirements import require_followable, require_script
from outpace.optim import Optimizer
from outpace.record.event_log import EventLog
from outpace.record.trace import Trace
from outpace.simulation.computing import Body
from outpace.simulation.executors.gradients import Gradients
from outpace.simulation.faults.failing import Failures
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.life import Life
from outpace.simulation.measured import with_measured_times
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_parameters import PeerModels, TaskBlocks
from outpace.simulation.peers import Peers, routes_of
from outpace.simulation.scripts.blocks import ScriptBlocks
from outpace.simulation.scripts.body import ScriptBody
from outpace.simulation.scripts.collectives.run import Followed
from outpace.simulation.scripts.host import ScriptModels
from outpace.simulation.scripts.measuring import times_of_script
from outpace.simulation.scripts.models import PeerScriptModels, ServerModels
from outpace.simulation.scripts.workers import ScriptWorkers, ScriptWorkload
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.simulation.servers import Servers
from outpace.simulation.virtual import VirtualRun
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.tasks import Workload


def simulation_of(
    experiment: Experiment,
    workload: Workload,
    trace: Trace,
    *,
    events: EventLog | None = None,
    **options: Any,
) -> VirtualRun:
    """Return a run that has not begun.

    Args:
        workload: of the task; or what the scripts have attached.
        events: is told of simulated failures.
        options: of `VirtualRun`.

    Raises:
        ConfigError: if the experiment does not fit its task, or the checkpoint cannot be read.
    """
    held = HeldRows(trace)
    # Without failures, or without checkpoints, nothing is taken back.
    is_held = experiment.faults is not None and experiment.checkpoint is not None
    run = VirtualRun(experiment, workload, trace, held if is_held else trace, **options)
    composition = _Composition(run, workload, held, events or EventLog())
    if isinstance(workload, ScriptWorkload):
        composition.of_script(workload)
    else:
        composition.of_task()
    return run


def simulation_of_script(
    experiment: Experiment, trace: Trace, files: Path | None, show: OnOutput, **options: Any
) -> VirtualRun:
    """Start the scripts of all workers, and return their run once all have attached.

    Without a law of run times, they are measured first: see `scripts.measuring`.

    Args:
        files: the folder for files of the scripts; None: the run keeps none.
        show: called with each line that the scripts print.
        options: of `simulation_of`.

    Raises:
        ConfigError: if the script does not fit the run, or not into the memory.
        RunError: if a script fails before it attaches.
    """
    task = experiment.script
    # Absolute, because processes start in the folder in which the fork server was started.
    task = dataclasses.replace(task, path=str(require_script(Path(task.path)).absolute()))
    experiment = dataclasses.replace(
        experiment, task=task, compute=experiment.compute or Measured()
    )
    experiment = with_measured_times(experiment, times_of_script)
    workers = ScriptWorkers(experiment, None if files is None else files.absolute(), show)
    try:
        return simulation_of(experiment, ScriptWorkload(workers), trace, **options)
    except BaseException:
        workers.close()
        raise


@dataclass(frozen=True, slots=True)
class _Composition:
    """Makes the parts of a run; for the arguments see `simulation_of` and `Failures`."""

    run: VirtualRun
    workload: Workload
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
            servers = ServerModels(run, workload)
            self._with_servers(ScriptBody(run, workload, servers), servers.new)
        elif workload.first.is_followed:
            require_followable(run.experiment)
            _, route = routes_of(run, strategy)
            body = ScriptBody(run, workload, ScriptModels(), route, strategy.all_reduce)
            run.compose(body, Followed(run, workload, body), Life(run), PeerSaving)
        else:
            blocks = ScriptBlocks(run, workload, strategy, optimizer)
            models = PeerModels(run, strategy, blocks)
            asked = PeerScriptModels(models, blocks, workload.workers.processes)
            self._with_peers(ScriptBody(run, workload, asked), models)

    @property
    def _optimizer(self) -> Optimizer:
        return self.run.experiment.optimizer_in_run(self.workload.samples)

    def _new_block(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server, given its initial ones."""
        layers = layers_within(self.run.slices[server], self.workload.layers)
        return parameter_block(initial, self._optimizer, layers=layers)

    def _with_servers(self, body: Body, new_block: Callable[[int, Block], ParameterBlock]) -> None:
        exchange = Servers(self.run, self.workload, new_block)
        self.run.compose(body, exchange, self._life(exchange), ServerSaving)

    def _with_peers(self, body: Body, models: PeerModels) -> None:
        exchange = Peers(self.run, models)
        self.run.compose(body, exchange, self._life(exchange), PeerSaving)

    def _life(self, exchange: Servers | Peers) -> Life:
        if self.run.experiment.faults is None:
            return Life(self.run)
        return Failures(self.run, exchange, self.held, self.events, simulation_of)
