"""A user's own training script as a worker: `model, optimizer = outpace.attach(...)`.

`optimizer.step()` passes the gradient to the worker's program and runs the kernel until the program
needs the next gradient; the model then has the next parameters.

The parameters in the optimizer's groups are exchanged. Model buffers (BatchNorm's averages) and
parameters that the optimizer does not have start as worker 0's. They are not exchanged after that,
except for buffers that the strategy averages. The run's result has worker 0's.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from outpace.config.experiment import Experiment
from outpace.engine.scripts.attached import AttachedScript
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.optimizers import require_steps
from outpace.errors import RunError
from outpace.optim.torch_optimizers import State
from outpace.real.collective.store import StoreConnection
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peers.peer import PeerWorker
from outpace.real.node.saving.of_worker import WorkerSaver
from outpace.real.node.script.keeping import Keeping
from outpace.real.node.script.overlapped import OverlappedGradient
from outpace.real.node.script.peer_models import ScriptModels
from outpace.real.node.script.saving import ScriptPart
from outpace.real.node.script.trainer import ScriptTrainer
from outpace.real.node.script.worker_script import WorkerScript
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import WorkerProcess
from outpace.support.place import HERE
from outpace.tasks.abort_points import Computation


class Attached(WorkerScript, AttachedScript):
    """A script that passes its gradients to the program of its worker.

    Args:
        models: the script's parameters in a run without servers.
    """

    def __init__(
        self,
        process: WorkerProcess,
        trainer: ScriptTrainer,
        work: Coroutine[Any, Any, None],
        models: ScriptModels | None = None,
    ) -> None:
        super().__init__(process, trainer, work)
        self._models = models
        self._fetched: dict[int, State] = {}

    def is_passive(self) -> bool:
        """True if a backward pass of this process makes no gradient that is to be pushed."""
        return self.is_elsewhere() or self.iteration < self._trainer.iteration

    @property
    def iteration(self) -> int:
        # That of the program, unless the script repeats some whose gradients the servers have.
        repeats = 0 if self.keeping is None else self.keeping.repeats_left
        return self._trainer.iteration - repeats

    def _join(self) -> bool:
        self._drive()
        return isinstance(self.process, ServedWorker) and self.process.has_ended

    def _restore(self) -> None:
        if self.part is not None:
            self.part.begin()
        if self.keeping is not None:
            self.keeping.restore()
        if self._models is not None:
            self._models.begin_iterations()

    def _begin(self) -> None:
        if self.keeping is not None:
            self.keeping.begins(self._trainer.iteration)
        self._parameters.begin()

    def _hand_over_gradient(self, *, sets: bool) -> None:
        if self.keeping is not None and self.keeping.repeat():
            self._handle_messages()
            self.exit_if_over(0.0)
            return
        source = self._models or self._trainer.overlapped or self._trainer
        self.process.from_script.put(source.take_gradient())
        self._drive()
        if self.part is not None:
            self.part.stepped()
        self._begin()

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`."""
        if self._left:
            yield Computation()
        else:
            with self._trainer.stopping() as computation:
                yield computation

    def attend(self) -> bool:
        strategy = self._experiment.peers
        if self._left or strategy is None or not strategy.exchanges:
            return False
        self.process.kernel.catch_up()
        return True

    # -- the state of the optimizer: on the servers, or in this worker ---------------------------

    def fetch(self) -> Mapping[int, State]:
        if self._models is not None:
            return self._models.read_state()
        process = self.process
        assert isinstance(process, ServedWorker)
        if process.closed or self.is_copy:
            raise RunError(
                f"the servers' optimizer state can be fetched only by {process.name} itself, not "
                "by processes that it forks, and only until its script ends: call "
                "optimizer.state_dict() there"
            )
        fetching = process.kernel.spawn(self._fetch(process), f"{process.name}'s state")
        while not fetching.done:
            self._run_kernel()
        found, self._fetched = self._fetched, {}
        return found

    async def _fetch(self, process: ServedWorker) -> None:
        self._fetched = self._trainer.joined_state(await process.optimizer_state())
        process.kernel.stop()

    def replace(self) -> None:
        """Replace the state; of several workers with servers, what worker 0 loads counts."""
        if self._models is not None:
            self._models.load_state()
        elif self.process.worker == 0:
            assert isinstance(self.process, ServedWorker)
            self.process.replace_optimizer_state(self._trainer.state())


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
    script, is_saved = ScriptModel(model, optimizer), experiment.checkpoint is not None
    require_steps(script, experiment)
    holds = True
    if experiment.peers is None:
        served = ServedWorker(link, number, experiment)
        trainer = ScriptTrainer(served, experiment, script)
        found = Attached(served, trainer, served.work(trainer))
        kept = KeptState(script, HERE.kept, is_saved)
        # Another process takes the place of this one when it is lost.
        is_replaced = is_saved and experiment.on_worker_loss == "restart"
        found.keeping = served.keeping = Keeping(
            served, kept, found.is_elsewhere, reports=is_replaced
        )
        if experiment.overlap != "none":
            trainer.overlapped = OverlappedGradient(trainer, found.is_passive)
    else:
        peer = PeerWorker(link, number, experiment, store)
        buffers = AveragedBuffers.of_script(script, experiment.peers)
        trainer = ScriptTrainer(peer, experiment, script, buffers.layout)
        models = ScriptModels(peer, experiment, trainer, buffers)
        holds = models.holds_state
        found = Attached(peer, trainer, peer.work(models), models)
        kept = KeptState(script, HERE.kept, is_saved)
        found.part = ScriptPart(
            number, script, kept, found.is_elsewhere, holds_state=models.holds_state
        )
        peer.saver = WorkerSaver(peer, models, experiment, found.part)
    HERE.tell = found.process.warn
    gradients = None if trainer.overlapped is None else trainer.overlapped.watched
    found.take_over(experiment, gradients=gradients, holds=holds, carries=False)
    return found
