"""Composes runs in virtual time from a body, an exchange, a life, and a saver of checkpoints.

Each part is chosen independently: what computes a gradient (a task or a script), how values are
combined (servers, averages, or the script's own collectives), and what happens to the processes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.cluster.observed import Measured
from outpace.cluster.paths import Paths
from outpace.config.experiment import Experiment
from outpace.engine.cut_offs import cut_off_rule
from outpace.engine.output import OnOutput
from outpace.engine.scripts.requirements import require_followable, require_script
from outpace.optim import Optimizer
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
from outpace.simulation.virtual import VirtualRun, run_time_of
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.sync.peers.strategy import PeerStrategy
from outpace.tasks import Workload, require_accuracy


def simulation_of(
    experiment: Experiment,
    workload: Workload,
    trace: Trace,
    **options: Any,
) -> VirtualRun:
    """Return a run that has not begun.

    Args:
        workload: workload of the task, or what the scripts have attached.
        options: further arguments of `VirtualRun`.

    Raises:
        ConfigError: if the experiment does not fit its task, or the checkpoint cannot be read.
    """
    held, fails = HeldRows(trace), experiment.faults is not None
    # Without failures, or without checkpoints, no rows are taken back.
    is_held = fails and experiment.checkpoint is not None
    run = VirtualRun(experiment, workload, trace, held if is_held else trace, **options)
    strategy = experiment.peers
    # refuses failures that cannot be scheduled
    optimizer = experiment.optimizer_in_run(workload.samples)

    def life(exchange: Servers | Peers) -> Life:
        if not fails:
            return Life(run)
        return Failures(run, exchange, held, simulation_of)

    if strategy is None:
        body, servers = _with_servers(run, workload, optimizer)
        run.compose(body, servers, life(servers), ServerSaving)
    elif isinstance(workload, ScriptWorkload) and workload.first.is_followed:
        body, followed = _with_own_collectives(run, workload, strategy)
        run.compose(body, followed, Life(run))
    else:
        body, peers = _with_peers(run, workload, optimizer, strategy)
        run.compose(body, peers, life(peers), PeerSaving)
    return run


def require_composable(experiment: Experiment, workload: Workload) -> None:
    """Raise ConfigError if an experiment does not fit its task, or a file that it names is wrong.

    workload: workload of the task, which is cut for the servers.
    """
    require_accuracy(workload, experiment.accuracies)
    workload.cut(experiment.slices(workload.layers))
    optimizer = experiment.optimizer_in_run(workload.samples)
    if not isinstance(experiment.compute, Measured):
        run_time_of(experiment)
    if experiment.network is not None:
        Paths(experiment.network, experiment.machines)
    if (cut_off := experiment.cut_off) is not None and cut_off.file is not None:
        cut_off_rule(experiment, cut_off, say=lambda _: None)
    Gradients(experiment, workload, lambda *_: None, lambda: 0.0)
    if experiment.peers is not None:
        TaskBlocks(workload, experiment.peers, optimizer)
    else:
        for block in workload.initial_parameters():
            parameter_block(block, optimizer)


def _with_servers(
    run: VirtualRun, workload: Workload, optimizer: Optimizer
) -> tuple[Body, Servers]:
    """Return the parts of a run with servers, of a task or of a script that has attached."""
    if isinstance(workload, ScriptWorkload):
        models = ServerModels(run, workload)
        return ScriptBody(run, workload, models), Servers(run, workload, models.new)

    def new_block(server: int, initial: Block) -> ParameterBlock:
        layers = layers_within(run.slices[server], workload.layers)
        return parameter_block(initial, optimizer, layers=layers)

    return _gradients(run, workload), Servers(run, workload, new_block)


def _with_peers(
    run: VirtualRun, workload: Workload, optimizer: Optimizer, strategy: PeerStrategy
) -> tuple[Body, Peers]:
    """Return the parts of a run without servers, of a task or of a script that has attached."""
    if isinstance(workload, ScriptWorkload):
        blocks = ScriptBlocks(run, workload, strategy, optimizer)
        models = PeerModels(run, strategy, blocks)
        asked = PeerScriptModels(run, models, blocks, workload.workers.processes)
        return ScriptBody(run, workload, asked), Peers(run, models)
    body = _gradients(run, workload)
    blocks_of_task = TaskBlocks(workload, strategy, optimizer)
    return body, Peers(run, PeerModels(run, strategy, blocks_of_task))


def _with_own_collectives(
    run: VirtualRun, workload: ScriptWorkload, strategy: PeerStrategy
) -> tuple[ScriptBody, Followed]:
    """Return the parts of the run of a script that trains with its own collectives."""
    require_followable(run.experiment)
    _, route = routes_of(run, strategy)
    body = ScriptBody(run, workload, ScriptModels(), route, strategy.all_reduce)
    return body, Followed(run, workload, body)


def _gradients(run: VirtualRun, workload: Workload) -> Gradients:
    return Gradients(run.experiment, workload, run.computed, run.share)


def simulation_of_script(
    experiment: Experiment, trace: Trace, files: Path | None, show: OnOutput, **options: Any
) -> VirtualRun:
    """Start the scripts of all workers, and return their run once all have attached.

    Without a law of run times, they are measured first: see `scripts.measuring`.

    Args:
        files: the folder for files of the scripts; None: the run keeps none.
        show: called with each line that the scripts print.
        options: further arguments of `simulation_of`.

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
