"""A user's own training script as a worker: `model, optimizer = outpace.attach(...)`.

`optimizer.step()` passes the gradient to the worker's program and runs the kernel until the program
needs the next gradient; the model then has the next parameters.

The parameters in the optimizer's groups are exchanged. Model buffers (BatchNorm's averages) and
parameters that the optimizer does not have are copied from worker 0 at the start. They are not
exchanged after that, except for buffers that the strategy averages. The result of the run has
worker 0's values.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from outpace.config.experiment import Experiment
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.requirements import require_steps
from outpace.engine.scripts.saved_script import SavedScript
from outpace.engine.scripts.watched import WatchedGradients
from outpace.engine.scripts.worker import Presence, never_stopped
from outpace.errors import RunError
from outpace.optim.torch_optimizers import State
from outpace.real.collective.store import StoreConnection
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peer import PeerWorker
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import WorkerProcess
from outpace.real.node.worker_saver import WorkerSaver
from outpace.real.script.driver import WorkerDriver
from outpace.real.script.overlapped import OverlappedGradient
from outpace.real.script.saving import ScriptPart
from outpace.real.script.script_saver import ScriptSaver
from outpace.real.script.shared_models import ScriptModels
from outpace.real.script.trainer import ScriptTrainer
from outpace.support.place import HERE
from outpace.tasks.abort_points import Computation


class RealAttached(WorkerDriver):
    """The driver of a script that passes its gradients to the program of its worker.

    Implements `StepDriver`.

    Args:
        models: the script's parameters in a run without servers.
    """

    carries = False

    def __init__(
        self,
        process: WorkerProcess,
        experiment: Experiment,
        trainer: ScriptTrainer,
        work: Coroutine[Any, Any, None],
        presence: Presence,
        models: ScriptModels | None = None,
        **what: Any,
    ) -> None:
        super().__init__(process, trainer, work, presence, **what)
        self._strategy, self._models = experiment.peers, models
        self.holds_state = models is None or models.holds_state
        self.gradients: WatchedGradients | None = None
        self._fetched: dict[int, State] = {}
        if experiment.overlap != "none":
            trainer.overlapped = OverlappedGradient(trainer, self._is_passive)
            self.gradients = trainer.overlapped.watched

    def _is_passive(self) -> bool:
        """True if a backward pass of this process makes no gradient to push."""
        return self.presence.is_elsewhere() or self.iteration < self._trainer.iteration

    @property
    def iteration(self) -> int:
        return self.computed()  # the program notes the time

    def join(self) -> bool:
        self._drive()
        return isinstance(self.process, ServedWorker) and self.process.has_ended

    def restore(self) -> None:
        if self.part is not None:
            self.part.begin()
        if self.keeping is not None:
            self.keeping.restore()
        if self._models is not None:
            self._models.begin_iterations()

    def begin(self) -> None:
        if self.keeping is not None:
            self.keeping.begins(self._trainer.iteration)

    def computes(self) -> None:
        """Do nothing: the program notes the time."""

    def computed(self) -> int:
        # The iteration of the program, unless the script repeats iterations whose gradients the
        # servers have.
        repeats = 0 if self.keeping is None else self.keeping.repeats_left
        return self._trainer.iteration - repeats

    def step(self, *, sets: bool) -> None:
        if self.keeping is not None and self.keeping.repeat():
            self._handle_messages()
            self.exit_if_over(0.0)
            return
        source = self._models or self._trainer.overlapped or self._trainer
        self.process.from_script.put(source.take_gradient())
        self._drive()
        if self.part is not None:
            self.part.stepped()
        if self.keeping is not None:
            self.keeping.begins(self._trainer.iteration)

    def abortable(self) -> AbstractContextManager[Computation]:
        return never_stopped() if self.presence.has_left else self._trainer.stopping()

    def attend(self) -> bool:
        strategy = self._strategy
        if self.presence.has_left or strategy is None or not strategy.exchanges:
            return False
        self.process.kernel.catch_up()
        return True

    # -- the state of the optimizer: on the servers, or in this worker ---------------------------

    def state(self) -> Mapping[int, State]:
        if self._models is not None:
            return self._models.read_state()
        process = self.process
        assert isinstance(process, ServedWorker)
        if process.closed or self.presence.is_copy:
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

    def load_state(self) -> None:
        """Replace the state; with servers, only the state that worker 0 loads counts."""
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
    when_at_limit: Callable[[], None] = lambda: None,
) -> RealAttached:
    """Return the driver of the worker, which `optimizer.step()` calls from now on.

    Args:
        store: the worker's connection to the store of the run, if it has one already.
        when_at_limit: called at stop.iterations.

    Raises:
        ConfigError: if the model or its optimizer cannot be shared.
    """
    script, is_saved = ScriptModel(model, optimizer), experiment.checkpoint is not None
    require_steps(script, experiment)
    presence, kept = Presence(), SavedScript(script, HERE.kept, is_saved)
    process: WorkerProcess
    models: ScriptModels | None = None
    keeping: ScriptSaver | None = None
    part: ScriptPart | None = None
    if experiment.peers is None:
        served = process = ServedWorker(link, number, experiment)
        trainer = ScriptTrainer(served, experiment, script)
        # If this process is lost, another process takes its place.
        is_replaced = is_saved and experiment.on_worker_loss == "restart"
        keeping = ScriptSaver(served, kept, presence.is_elsewhere, reports=is_replaced)
        served.keeping, work = keeping, served.work(trainer)
    else:
        peer = process = PeerWorker(link, number, experiment, store)
        buffers = AveragedBuffers.of_script(script, experiment.peers)
        trainer = ScriptTrainer(peer, experiment, script, buffers.layout)
        models = ScriptModels(peer, experiment, trainer, buffers)
        part = ScriptPart(
            number, script, kept, presence.is_elsewhere, holds_state=models.holds_state
        )
        peer.saver = WorkerSaver(peer, models, experiment, part)
        work = peer.work(models)
    HERE.tell = process.warn
    return RealAttached(
        process,
        experiment,
        trainer,
        work,
        presence,
        models,
        keeping=keeping,
        part=part,
        when_at_limit=when_at_limit,
    )
