"""Saves a worker without servers for checkpoints, and restores it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from outpace.config.experiment import Experiment
from outpace.engine.resuming import own_state_of, state_of
from outpace.engine.scripts.redividing import Redivided
from outpace.real.node.saving.saver import PartFiles, SavedPart, Saver
from outpace.record.checkpoints import Checkpoint
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.checkpoint.cuts import WorkerCuts
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import (
    accumulated_in,
    common_state,
    restore_own,
    state_of_worker,
    unsent_in,
)
from outpace.sync.messages import worker_name
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.peers.context import Unsent
from outpace.sync.peers.parameters import SharedModel

if TYPE_CHECKING:
    from outpace.real.node.following import FollowingWorker
    from outpace.real.node.peers.peer import PeerWorker

NOTHING: Final = Unsent(0, 0)
COMMON: Final = "common"  # name of the file of the model that all workers have


class SavedModels(Protocol):
    """The models of one worker; None: the strategy has none of this kind."""

    @property
    def shared(self) -> SharedModel | None: ...

    @property
    def own_block(self) -> ParameterBlock | None: ...


@dataclass(frozen=True, slots=True)
class Restored:
    """The state that a worker goes on with, beside its models.

    Attributes:
        averages: all-reduces of the run before.
        updates: versions of the model that the worker evaluates.
        accumulated: gradients that it had accumulated.
        unsent: see `PeerContext.unsent`.
    """

    averages: int = 0
    updates: int = 0
    accumulated: PendingIteration | None = None
    unsent: Unsent = NOTHING


class WorkerSaver(Saver):
    """The requests of the coordinator to save one worker.

    Args:
        models: of the worker, once they are made.
    """

    _process: PeerWorker | FollowingWorker
    _cuts: WorkerCuts

    def __init__(
        self, process: PeerWorker | FollowingWorker, models: SavedModels, experiment: Experiment
    ) -> None:
        assert experiment.peers is not None
        super().__init__(process, WorkerCuts(self._take, self._miss))
        self._models, self._experiment = models, experiment
        self._strategy = experiment.peers
        self._first = self._begins = 0  # iterations: the first one, the present one
        self._pending: Callable[[], PendingIteration | None] = lambda: None
        self._has_unsent = False  # its own model has steps that no other worker has

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
        self._load(resume, state, own, others)
        updates = checkpoint.index.updates
        if not self._strategy.has_common and own is not None and own.shard == worker:
            updates = own.version
        return Restored(state.version, updates, accumulated_in(state, own), unsent_in(own))

    def _load(
        self, folder: Path, state: ShardState, own: ShardState | None, others: Redivided | None
    ) -> None:
        """Put a state into the models. Raises OSError.

        Args:
            folder: of the checkpoint.
            state: of the model that all workers have.
            own: of the worker, as `own_state_of` returns it.
            others: as for `restore`.
        """
        shared, block = self._models.shared, self._models.own_block
        if shared is not None:
            shared.restore(state.parameters, state.optimizer, state.pushes, state.version)
        if block is not None:
            restore_own(block, state, own)

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
        self._cuts.pass_by(self._process.results)

    # -- the state -------------------------------------------------------------------

    def _progress(self) -> tuple[int, int]:
        return self._process.version, self._process.results

    def _take(self, number: int) -> None:
        order = self._asked.pop(number)
        common = self.common_state() if order.common else None
        own = None if order.clock == 0 else self._own_state()  # 0: the run begins
        write = partial(_write, self._saved(), common, own)
        self._write(order, self._now(), self._totals(), write)

    def _saved(self) -> SavedPart:
        process = self._process
        return SavedPart(self._begins, process.results, process.version)

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
        models, process = self._models, self._process
        iterations, averages = {process.worker: self._begins}, process.results
        if models.shared is not None:
            parameters, optimizer, gradients = models.shared.state()
            return common_state(iterations, averages, gradients, parameters, optimizer)
        own = models.own_block
        assert own is not None
        return common_state(iterations, averages, 0, own.read(), {})

    def _own_state(self) -> ShardState | None:
        """Return what this worker has beside that model; None if it has nothing."""
        own, process = self._models.own_block, self._process
        pending, differs = self._pending(), self._strategy.saved_apart or self._has_unsent
        if own is None and pending is None:
            return None
        return state_of_worker(
            process.worker,
            self._begins,
            {} if own is None else own.optimizer_state(),
            () if pending is None else (pending,),
            own.read() if own is not None and differs else None,
            process.version if self._models.shared is None else 0,
        )


def _write(
    saved: SavedPart, common: ShardState | None, own: ShardState | None, files: PartFiles
) -> SavedPart:
    """Write what there is of a worker; return `saved` with the records."""
    if common is not None:
        saved.shard = files.add_shard(common, COMMON)
    if own is not None:
        saved.own = files.add_shard(own, worker_name(own.shard))
    return saved
