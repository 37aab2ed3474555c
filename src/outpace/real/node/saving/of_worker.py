"""Saves a worker without servers for checkpoints, beside its work, and restores it.

The state is taken in the worker's thread, and written by another thread. Its tensors do not change
meanwhile. `sync.checkpoint.cuts` says when a state is that of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec
import torch

from outpace.config.experiment import Experiment
from outpace.engine.resuming import own_state_of, state_of
from outpace.engine.scripts.redividing import Redivided
from outpace.errors import RunError
from outpace.real.net.checkpoint_messages import (
    CheckpointFailed,
    CheckpointMissed,
    CheckpointPart,
    GiveUpCheckpoint,
    SendPiece,
    TakeCheckpoint,
    TellVersion,
    VersionReached,
)
from outpace.real.net.clock import RealClock
from outpace.real.node.saving.files import NOT_SAVED, HeldFiles, PartFiles
from outpace.real.node.saving.thread import WritingThread
from outpace.record.checkpoints import Checkpoint, Part, ShardRecord
from outpace.record.checkpoints.committed import Damaged
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
from outpace.sync.messages import WireMessage, worker_name
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.peers.context import Unsent
from outpace.sync.peers.parameters import SharedModel

# A message, and the contents of the files that it announces.
_Answer: TypeAlias = tuple[CheckpointPart | CheckpointFailed, Sequence[torch.Tensor]]
NOTHING: Final = Unsent(0, 0)
COMMON: Final = "common"  # name of the file of the model that all workers have


class SavedModels(Protocol):
    """The models of one worker; None: the strategy has none of this kind."""

    @property
    def shared(self) -> SharedModel | None: ...

    @property
    def own_block(self) -> ParameterBlock | None: ...


class SavedWorker(msgspec.Struct):
    """The encoded content of a worker's CheckpointPart.

    Attributes:
        worker: its number.
        iteration: that the worker begins next.
        results: of all-reduces that it has.
        updates: versions of the model that it evaluates.
        parts: the files that it wrote.
        common: the model that all workers have, if it was asked for it.
        own: what it has beside it, if anything.
        is_complete: see `ScriptState`.
        kept_at: the time of the run at which its script was saved, if it is one.
    """

    worker: int
    iteration: int
    results: int
    updates: int
    parts: list[Part]
    common: ShardRecord | None = None
    own: ShardRecord | None = None
    is_complete: bool = True
    kept_at: Time | None = None


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


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The requests of a `WorkerSaver` to its worker.

    results: of all-reduces so far. updates: versions of the model that it evaluates. send: sends a
    message to the coordinator, and a block with it. report: sends what was recorded until now.
    """

    worker: int
    clock: RealClock
    totals: Callable[[], Totals]
    results: Callable[[], int]
    updates: Callable[[], int]
    send: Callable[..., None]
    report: Callable[[], None] = lambda: None


class WorkerSaver:
    """The requests of the coordinator to save one worker.

    Args:
        models: of the worker, once they are made.
    """

    def __init__(self, view: WorkerView, models: SavedModels, experiment: Experiment) -> None:
        assert experiment.peers is not None
        self._view, self._models, self._experiment = view, models, experiment
        self._strategy = experiment.peers
        self._cuts = WorkerCuts(self._take, self._missed)
        self._asked: dict[int, TakeCheckpoint] = {}
        self._tell_at: int | None = None  # the version that the coordinator waits for
        self._first = self._begins = 0  # iterations: the first one, the present one
        self._pending: Callable[[], PendingIteration | None] = lambda: None
        self._has_unsent = False  # its own model has steps that no other worker has
        self._thread = WritingThread(view.clock)
        self._held = HeldFiles(view.send)

    def restore(self, first: int, resume: Path | None, others: Redivided | None = None) -> Restored:
        """Put the state of a checkpoint into the models, if the run goes on from one.

        Args:
            first: the first iteration of this worker.
            resume: folder of the checkpoint; None: the run begins.
            others: of a script, if there were other workers at the checkpoint.

        Raises:
            RunError: if it cannot be read.
        """
        self._first = self._begins = first
        if resume is None:
            return Restored()
        worker, experiment = self._view.worker, self._experiment
        try:
            checkpoint = Checkpoint(resume)
            state = state_of(checkpoint, experiment, 0)
            own = own_state_of(checkpoint, experiment, worker)
            self._load(resume, state, own, others)
        except (OSError, Damaged) as error:
            raise RunError(f"{worker_name(worker)} cannot read its checkpoint: {error}") from error
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
        self._cuts.pass_by(self._view.results())

    def updated(self, version: int) -> None:
        """The model has this version; tell the coordinator if it waits for it."""
        if self._tell_at is not None and version >= self._tell_at:
            self._tell_at = None
            self._view.send(VersionReached(version, self._view.results()))

    # -- orders of the coordinator ---------------------------------------------------

    def take(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if isinstance(message, TakeCheckpoint):
            self._asked[message.number] = message
            self._cuts.ask(message.number, message.clock)
        elif isinstance(message, GiveUpCheckpoint):
            self._asked.pop(message.number, None)
            self._cuts.give_up(message.number)
            self._held.give_up(message.number)
        elif isinstance(message, SendPiece):
            self._held.take(message)
        elif isinstance(message, TellVersion):
            self._tell_at = message.version
            self.updated(self._view.updates())
        else:
            return False
        return True

    def _missed(self, number: int, results: int) -> None:
        del self._asked[number]
        self._view.send(CheckpointMissed(number, results))

    def _take(self, number: int) -> None:
        """Take the state of the worker, and have it written."""
        order = self._asked.pop(number)
        common = self.common_state() if order.common else None
        own = None if order.clock == 0 else self._own_state()  # 0: the run begins
        write = partial(_write, saved=self._saved(), common=common, own=own)
        self._write(order, self._now(), self._totals(), write)

    def _saved(self) -> SavedWorker:
        view, begins = self._view, self._begins
        numbers = view.worker, begins, view.results(), view.updates()
        return SavedWorker(*numbers, [])

    def _write(
        self,
        order: TakeCheckpoint,
        now: Time,
        totals: Totals,
        write: Callable[[PartFiles], SavedWorker],
    ) -> None:
        """Have the state that was taken at this time written, or held until it is fetched."""
        self._thread.do(partial(_answered, order, now, totals, write), self._answer)

    def _answer(self, answer: _Answer) -> None:
        message, contents = answer
        self._held.hold(message.number, contents)
        self._view.send(message)

    def _now(self) -> Time:
        return max(0, self._view.clock.now)

    def _totals(self) -> Totals:
        """Return the sums of this worker until now; a copy."""
        view, totals = self._view, Totals()
        totals.add(view.totals())
        # What is computed now is computed again after a resume.
        computed = totals.iterations.get(view.worker, 0)
        totals.iterations[view.worker] = min(computed, self._begins - self._first)
        return totals

    def common_state(self) -> ShardState:
        """Return the state of the model that all workers have now."""
        models, view = self._models, self._view
        iterations, averages = {view.worker: self._begins}, view.results()
        if models.shared is not None:
            parameters, optimizer, gradients = models.shared.state()
            return common_state(iterations, averages, gradients, parameters, optimizer)
        own = models.own_block
        assert own is not None
        return common_state(iterations, averages, 0, own.read(), {})

    def _own_state(self) -> ShardState | None:
        """Return what this worker has beside that model; None if it has nothing."""
        own, view = self._models.own_block, self._view
        pending, differs = self._pending(), self._strategy.saved_apart or self._has_unsent
        if own is None and pending is None:
            return None
        return state_of_worker(
            view.worker,
            self._begins,
            {} if own is None else own.optimizer_state(),
            () if pending is None else (pending,),
            own.read() if own is not None and differs else None,
            view.updates() if self._models.shared is None else 0,
        )


def _write(
    files: PartFiles, saved: SavedWorker, common: ShardState | None, own: ShardState | None
) -> SavedWorker:
    """Write what there is of a worker; return `saved` with the records."""
    if common is not None:
        saved.common = files.add_shard(common, COMMON)
    if own is not None:
        saved.own = files.add_shard(own, worker_name(own.shard))
    saved.parts = files.parts
    return saved


def _answered(
    order: TakeCheckpoint,
    now: Time,
    totals: Totals,
    write: Callable[[PartFiles], SavedWorker],
) -> _Answer:
    """Write files; return what to tell the coordinator."""
    files = PartFiles(order.folder)
    try:
        saved = write(files)
    except NOT_SAVED as error:
        return CheckpointFailed.because(order.number, error), ()
    encoded = msgspec.msgpack.encode(saved)
    return CheckpointPart(order.number, now, totals, encoded, files.sent), files.contents
