"""Saves a worker without servers for checkpoints, and restores it.

A task is saved where its program says `may_save`. So is what the program of a script has, at the
end of an iteration; what the script itself keeps follows at its next forward pass
(`real.node.script.saving`). In between, only an average with another worker may change its model.

Workers that average in pairs, or never (`PeerStrategy.saved_apart`), are all asked at one moment,
when no average is under way. A script that computes a gradient then is saved at the end of the
iteration, without what averages have changed since it was asked. So the mean of the models is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import torch

from outpace.blocks.block import Phantom, Value
from outpace.config.experiment import Experiment
from outpace.engine.resuming import kept_in, model_of, own_state_of, state_of
from outpace.engine.scripts.redividing import Redivided
from outpace.optim import OptimizerState
from outpace.real.net.checkpoint_messages import NotSaved, TakeCheckpoint
from outpace.real.node.saving.saver import PartFiles, SavedPart, Saver
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
    from outpace.real.node.peers.peer import PeerWorker
    from outpace.real.node.script.saving import ScriptPart

COMMON: Final = "common"  # name of the file of the model that all workers have


class Changes:
    """The sum of the changes of a model from some moment on.

    noted_in: the changes that the model notes; these are one of them until they are forgotten.
    """

    def __init__(self, noted_in: list[Changes] | None = None) -> None:
        self.total: torch.Tensor | None = None  # None: there were none
        self._noted_in = noted_in
        if noted_in is not None:
            noted_in.append(self)

    def add(self, by: torch.Tensor) -> None:
        """Add a copy of a change."""
        self.total = by.clone() if self.total is None else self.total.add_(by)

    def forget(self) -> None:
        """Note no more changes."""
        if self._noted_in is not None:
            self._noted_in.remove(self)


class SavedModels(Protocol):
    """The models of one worker."""

    def common_state(self) -> tuple[Value, OptimizerState, int]:
        """Return a copy of the model that all workers have, its optimizer's state, its gradients.

        The optimizer of a script keeps its state itself.
        """

    def own_state(
        self, changes: Changes, *, differs: bool
    ) -> tuple[OptimizerState, Value | None] | None:
        """Return what the optimizer of the worker's own model remembers, and its parameters.

        None if this worker has nothing beside the common model and the file of its script.

        Args:
            changes: of the parameters, which are left out.
            differs: True if its parameters are not those of the common model.
        """

    def note_changes(self) -> Changes:
        """Note the changes of the worker's own model by averages from now on."""

    def restore(self, state: ShardState, own: ShardState | None) -> None:
        """Go on from a checkpoint.

        Args:
            state: of the model that all workers have.
            own: what the worker had beside it, if anything.
        """


@dataclass(slots=True)
class _Taken:
    """The state of a worker's program in a checkpoint.

    Attributes:
        now: the time of the run.
        totals: the sums of this worker until then.
        saved: the worker's part of the checkpoint, without files.
        common: the model that all workers have, if it is asked for.
        own: what the worker has beside it and its script, if anything.
    """

    order: TakeCheckpoint
    now: Time
    totals: Totals
    saved: SavedPart
    common: ShardState | None
    own: ShardState | None


class WorkerSaver(Saver):
    """The requests of the coordinator to save one worker.

    Args:
        models: of the worker, once they are made.
        script: what its script keeps; None: it is of a task.
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
        self._first = self._begins = 0  # iterations: the first one, the present one
        self._pending: Callable[[], PendingIteration | None] = lambda: None
        self._has_unsent = False  # its own model has steps that no other worker has
        # Requests that came in the middle of an iteration of a script.
        self._at_end: dict[int, Changes] = {}

    def restore(self, first: int, resume: Path | None, others: Redivided | None = None) -> Restored:
        """Put the state of a checkpoint into the models, if the run goes on from one.

        Args:
            first: the first iteration of this worker.
            resume: folder of the checkpoint; None: the run begins.
            others: of a script, if there were other workers at the checkpoint.

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
        """The worker begins this iteration next; see `PeerContext.may_save`.

        Args:
            pending: returns a copy of the gradients that it has accumulated, or counts those that
                are only in its own model.
            has_unsent: there may be such gradients.
        """
        self._begins, self._pending, self._has_unsent = iteration, pending, has_unsent
        if self._script is not None:
            self._script.is_between = True
        self._cuts.pass_by(self._process.results)
        waiting, self._at_end = self._at_end, {}
        for number, changes in waiting.items():
            changes.forget()
            if number in self._asked:  # it was not given up
                self._take_now(number, changes)

    # -- the state -------------------------------------------------------------------

    def _take(self, number: int) -> None:
        if self._script is None or self._script.is_between:
            self._take_now(number, Changes())
        else:
            self._at_end[number] = self._models.note_changes()

    def _take_now(self, number: int, changes: Changes) -> None:
        """Take what the program has; what a script keeps follows at its next forward pass.

        changes: of the model that are not part of the checkpoint.
        """
        order, process = self._asked[number], self._process
        common = self.common_state() if order.common else None
        own = None if order.clock == 0 else self._own_state(changes)  # 0: the run begins
        saved = SavedPart(self._begins, process.results, process.version)
        taken = _Taken(order, self._now(), self._totals(), saved, common, own)
        if self._script is None:
            self._save(taken, {})
        else:
            self._script.forward.call(partial(self._save_script, taken, self._script))

    def _save_script(self, taken: _Taken, script: ScriptPart) -> None:
        """Add what the script keeps, at the first forward pass of the iteration."""
        number = taken.order.number
        if number not in self._asked:
            return  # it was given up
        try:
            has_model = taken.own is not None and taken.own.parameters.nbytes > 0
            kept = script.copy(has_model=has_model)
        except Unfit as error:
            del self._asked[number]
            self._send(NotSaved.because(number, error))
            return
        self._process.flush()  # before the message that the script is saved, which may complete it
        taken.saved.is_complete, taken.saved.kept_at = script.is_complete, self._now()
        self._save(taken, kept)

    def _save(self, taken: _Taken, kept: Mapping[str, torch.Tensor]) -> None:
        """Have a part of a checkpoint written. kept: what the script keeps."""
        del self._asked[taken.order.number]
        write = partial(_write, taken, self._process.worker, kept)
        self._write(taken.order, taken.now, taken.totals, write)

    def _now(self) -> Time:
        return max(0, self._process.clock.now)

    def _totals(self) -> Totals:
        """Return the sums of this worker until now; a copy."""
        process, totals = self._process, Totals()
        totals.add(process.recorder.totals)
        # What is computed now is computed again after a resume.
        computed = totals.iterations.get(process.worker, 0)
        totals.iterations[process.worker] = min(computed, self._begins - self._first)
        return totals

    def common_state(self) -> ShardState:
        """Return the state of the model that all workers have now."""
        process = self._process
        parameters, optimizer, gradients = self._models.common_state()
        iterations = {process.worker: self._begins}
        return common_state(iterations, process.results, gradients, parameters, optimizer)

    def _own_state(self, changes: Changes) -> ShardState | None:
        """Return what this worker has beside that model and its script; None: it has nothing."""
        process, pending = self._process, self._pending()
        differs = self._strategy.saved_apart or self._has_unsent
        found = self._models.own_state(changes, differs=differs)
        if found is None and pending is None:
            return None
        optimizer, parameters = found or ({}, None)
        held = () if pending is None else (pending,)
        steps = 0 if self._strategy.has_common else process.version
        return state_of_worker(process.worker, self._begins, optimizer, held, parameters, steps)


def _write(
    taken: _Taken, worker: int, kept: Mapping[str, torch.Tensor], files: PartFiles
) -> SavedPart:
    """Write what there is of a worker; return its part of the checkpoint.

    kept: what its script keeps; empty: it is of a task.
    """
    saved = taken.saved
    if taken.common is not None:
        saved.shard = files.add_shard(taken.common, COMMON)
    if taken.own is not None:
        saved.own = files.add_shard(taken.own, model_of(worker) if kept else worker_name(worker))
    if kept:
        files.add(kept_in(worker), kept)
    return saved
