"""Makes the worker of a script that calls `outpace.attach`."""

from __future__ import annotations

import torch

from outpace.config.experiment import Experiment
from outpace.engine.momentum import stale_momentum
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.optimizers import require_workers_can_step
from outpace.engine.scripts.takeover import take_over
from outpace.engine.scripts.watched_parameters import WatchedParameters
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import require_known
from outpace.real.collective.store import StoreConnection
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peers.peer import PeerWorker
from outpace.real.node.script.attach import Attached
from outpace.real.node.script.overlapped import OverlappedGradient
from outpace.real.node.script.peer_models import ScriptModels
from outpace.real.node.script.saving import ScriptSaver
from outpace.real.node.script.trainer import ScriptTrainer
from outpace.real.node.worker import ServedWorker
from outpace.support.place import HERE


def attached(
    link: CoordinatorLink,
    number: int,
    experiment: Experiment,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    store: StoreConnection | None = None,
) -> Attached:
    """Return the worker that `optimizer.step()` drives from now on; call `start` to join the run.

    Args:
        store: the worker's connection to the store of the run, if it has one already.

    Raises:
        ConfigError: if the model or its optimizer cannot be shared.
    """
    script = ScriptModel(model, optimizer)
    if experiment.peers is None:
        if not isinstance(experiment.optimizer, PythonOptimizer):  # made on the servers
            require_known(type(optimizer))
        script.settings()  # raises if a setting cannot be sent
        served = ServedWorker(link, number, experiment)
        trainer = ScriptTrainer(served, experiment, script)
        has_checkpoints = experiment.checkpoint is not None
        kept = KeptState(script, HERE.kept, has_checkpoints)
        is_replaced = has_checkpoints and experiment.on_worker_loss == "restart"
        work = served.work(trainer)
        found = Attached(served, trainer, work, kept=kept, is_replaced=is_replaced)
        if experiment.overlap != "none":
            trainer.overlapped = found.overlapped = OverlappedGradient(trainer, found.is_passive)
    else:
        require_workers_can_step(script, experiment.optimizer, experiment.peers)
        peer = PeerWorker(link, number, experiment, store)
        trainer = ScriptTrainer(peer, experiment, script)
        models = ScriptModels(peer, experiment, trainer)
        found = Attached(peer, trainer, peer.work(models), models)
        kept = KeptState(script, HERE.kept, experiment.checkpoint is not None)
        found.saver = peer.saver = ScriptSaver(
            peer, models, experiment, script, kept, found.is_elsewhere
        )
    HERE.tell = found.process.warn
    found.watched = WatchedParameters(script, experiment, found.process.name, carries=False)
    found.warnings = stale_momentum(experiment, script.momenta)
    take_over(optimizer, found.step, found.state.whole, found.state.loading)
    return found
