"""Saves a worker without servers for checkpoints, and restores it.

A task is saved where its program says `may_save`. The state of a script's program is saved there as
well, at the end of an iteration; the state of the script itself follows at its next forward pass
(`real.script.saving`). In between, only an average with another worker may change its model.

Workers that average in pairs, or never (`PeerStrategy.saved_apart`), are all asked at the same
time, when no average is running. A script that is computing a gradient at that time is saved at the
end of the iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import torch

from outpace.blocks.block import Phantom, Value
from outpace.config.experiment import Experiment
from outpace.engine.resuming import kept_in, model_of, own_state_of, state_of
from outpace.engine.scripts.redividing import Redivided
from outpace.optim import OptimizerState
from outpace.real.net.checkpoint_messages import CheckpointPart, NotSaved
from outpace.real.node.saver import PartFiles, Saver
from outpace.record.checkpoints import Checkpoint
from outpace.record.checkpoints.trees import Unfit
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.checkpoint.cuts import WorkerCuts
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import Restored, common_state, state_of_worker
from outpace.sync.messages import worker_name

if TYPE_CHECKING:
    from outpace.real.node.following import FollowingWorker
    from outpace.real.node.peer import PeerWorker
    from outpace.real.script.saving import ScriptPart

COMMON: Final = "common"  # name of the file of the model that all workers have


class SavedModels(Protocol):
    """The models of one worker."""

    def common_state(self) -> tuple[Value, OptimizerState, int]:
        """Return a copy of the common model, its optimizer's state, and its gradients.

        The state of a script's own optimizer is not included.
        """

    def own_state(self, *, differs: bool) -> tuple[OptimizerState, Value | None] | None:
        """Return the parameters of the worker's own model and the state of its optimizer.

        None if this worker has no other state than the common model and the file of its script.

        Args:
            differs: True if its parameters differ from the common model's.
        """

    def restore(self, state: ShardState, own: ShardState | None) -> None:
        """Continue from a checkpoint.

        Args:
            state: state of the model that all workers have.
            own: state of the worker's own model and optimizer; None: the worker has none.
        """


class WorkerSaver(Saver):
    """The coordinator's requests to save one worker.

    Args:
        models: models of the worker, once they are made.
        script: the state of its script; None: it trains a task.
    """

    _process: PeerWorker | FollowingWorker
    _cuts: WorkerCuts

    def __init__(
        self,
        process: PeerWorker | FollowingWorker,
        models: SavedModels,
        experiment: Experiment,
        script: ScriptPart | None = None,
    ) -> None:
        assert experiment.peers is not None
        super().__init__(process, WorkerCuts(self._take, self._miss))
        self._models, self._experiment, self._script = models, experiment, script
        self._strategy = experiment.peers
        self._first = self._begins = 0  # the first iteration and the present one
        self._pending: Callable[[], PendingIteration | None] = lambda: None
        self._has_unsent = False  # its own model has steps that no other worker has
        self._is_due = False  # an order came in the middle of an iteration of a script

    def restore(self, first: int, resume: Path | None, others: Redivided | None = None) -> Restored:
        """Put the state of a checkpoint into the models, if the run continues from one.

        Args:
            first: the first iteration of this worker.
            resume: folder of the checkpoint; None: the run begins.
            others: for a script, True if the checkpoint had another number of workers.

        Raises OSError and Damaged.
        """
        self._first = self._begins = first
        if resume is None:
            return Restored()
        worker, experiment = self._process.worker, self._experiment
        checkpoint = Checkpoint(resume)
        state = state_of(checkpoint, experiment, 0)
        own = own_state_of(checkpoint, experiment, worker)
        has, strategy = own, self._strategy
        if self._script is not None:
            has = self._script.read(resume, own, others)
            if others is not None and strategy.has_common and strategy.has_own:
                has = replace(has, parameters=Phantom(0))  # without steps that only one worker has
        self._models.restore(state, has)
        updates = checkpoint.index.updates
        if not strategy.has_common and own is not None and own.shard == worker:
            updates = own.version
        return Restored.of(state, own, updates)

    # -- what the worker does --------------------------------------------------------

    def look(
        self,
        iteration: int,
        pending: Callable[[], PendingIteration | None],
        *,
        has_unsent: bool = False,
    ) -> None:
        """Note that the worker begins this iteration next; see `PeerContext.may_save`.

        Args:
            pending: returns a copy of its accumulated gradients, or the number of gradients that
                are only in its own model.
            has_unsent: True if there may be such gradients.
        """
        self._begins, self._pending, self._has_unsent = iteration, pending, has_unsent
        if self._script is not None:
            self._script.is_between = True
        self._cuts.pass_by(self._process.results)
        is_due, self._is_due = self._is_due, False
        if is_due and self._order is not None:  # the request was not given up
            self._take_now()

    # -- the state -------------------------------------------------------------------

    def _take(self, number: int) -> None:
        if self._script is None or self._script.is_between:
            self._take_now()
        else:
            self._is_due = True

    def _take_now(self) -> None:
        """Take the program's state. The state of the script follows at its next forward pass."""
        order, process = self._order, self._process
        assert order is not None
        common = self.common_state() if order.common else None
        own = None if order.clock == 0 else self._own_state()  # 0: the run begins
        counts = self._begins, process.results, process.version
        part = CheckpointPart(order.number, self._now(), self._totals(), *counts)
        add = partial(_add_models, process.worker, common, own)
        if self._script is None:
            self._write(part, self._taken().folder, partial(add, {}))
        else:
            has_model = own is not None and own.parameters.nbytes > 0
            save = partial(self._save_script, part, add, self._script, has_model=has_model)
            self._script.forward.call(save)

    def _save_script(
        self,
        part: CheckpointPart,
        add: Callable[..., None],
        script: ScriptPart,
        *,
        has_model: bool,
    ) -> None:
        """Add the script's state, at the first forward pass of the iteration.

        Args:
            add: see `_add_models`; called with its last arguments.
            has_model: True: the parameters of its model are in another file.
        """
        if self._order is None or self._order.number != part.number:
            return  # the request was given up
        order = self._taken()
        try:
            kept = script.copy(has_model=has_model)
        except Unfit as error:
            self._send(NotSaved.because(part.number, error))
            return
        # before the message that the script is saved, as this may complete the checkpoint
        self._process.flush()
        part.is_complete, part.kept_at = script.is_complete, self._now()
        self._write(part, order.folder, partial(add, kept))

    def _now(self) -> Time:
        return max(0, self._process.clock.now)

    def _totals(self) -> Totals:
        """Return a copy of the sums of this worker until now."""
        process = self._process
        totals = process.recorder.totals.copy()
        # The present computation is repeated after a resume.
        computed = totals.iterations.get(process.worker, 0)
        totals.iterations[process.worker] = min(computed, self._begins - self._first)
        return totals

    def common_state(self) -> ShardState:
        """Return the state of the common model now."""
        process = self._process
        parameters, optimizer, gradients = self._models.common_state()
        iterations = {process.worker: self._begins}
        return common_state(iterations, process.results, gradients, parameters, optimizer)

    def _own_state(self) -> ShardState | None:
        """Return this worker's state besides common model and script; None: there is none."""
        process, pending = self._process, self._pending()
        differs = self._strategy.saved_apart or self._has_unsent
        found = self._models.own_state(differs=differs)
        if found is None and pending is None:
            return None
        optimizer, parameters = found or ({}, None)
        held = () if pending is None else (pending,)
        steps = 0 if self._strategy.has_common else process.version
        return state_of_worker(process.worker, self._begins, optimizer, held, parameters, steps)


def _add_models(
    worker: int,
    common: ShardState | None,
    own: ShardState | None,
    kept: Mapping[str, torch.Tensor],
    part: CheckpointPart,
    files: PartFiles,
) -> None:
    """Add the existing states of a worker to its part of a checkpoint.

    Args:
        common: the common model, if it is requested.
        own: the worker's state besides that model and its script, if any.
        kept: the state of its script; empty: it trains a task.
    """
    if common is not None:
        part.shard = files.add_shard(common, COMMON)
    if own is not None:
        part.own = files.add_shard(own, model_of(worker) if kept else worker_name(worker))
    if kept:
        files.add(kept_in(worker), kept)
