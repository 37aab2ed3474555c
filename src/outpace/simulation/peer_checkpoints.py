"""Checkpoints of a run without servers in virtual time: when, what, and how a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper
from outpace.record.checkpoints import Taken, write_shard
from outpace.simulation.awaited_scripts import commit
from outpace.simulation.checkpoints import Written, written_now
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import worker_name
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.peers import PeerSimulation


class PeerSaving:
    """Takes the checkpoints of a run when its strategy says that it may (`PeerContext.may_save`).

    The first worker that has the result of an all-reduce says so first. Then no worker has taken a
    step since it joined, and all will have the same parameters. So one model is saved at once, and
    what the optimizers of the workers' own models remember. Where workers accumulate gradients
    meanwhile, each is saved when it has the result; none can have the next one before all have.
    Workers with models of their own (`PeerStrategy.saved_apart`) are saved together after any
    iteration of one of them; what others compute then is computed again.
    Workers that have left the run are not waited for. If it goes on from here, one that was lost
    begins with the others again, and one that had finished has nothing more to do.
    """

    def __init__(
        self,
        run: PeerSimulation,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        self._run, self._workload, self._keeper = run, workload, keeper
        self._every = settings.every_updates
        self._number = 0 if keeper is None else keeper.last
        self._passed = -1  # results of all-reduces that a worker has had
        self._is_due = False
        self._open: int | None = None  # results after which each worker is saved
        self._saved: dict[int, ShardState] = {}  # by worker
        first = run.resume.first if run.resume else [0] * run.experiment.workers
        self._begins = dict(enumerate(first))  # by worker: the iteration that it computes
        # By worker that has left: the iteration after its last one; None: it was lost.
        self._gone: dict[int, int | None] = {}

    def begin(self) -> None:
        """Take the first checkpoint of a run that has none; before any event."""
        if not self._number:
            workers = range(self._run.experiment.workers)
            self._write(self._run.state(dict.fromkeys(workers, 0), self._run.initial))

    def updated(self, version: int) -> None:
        """Note that the model has this version."""
        if self._every is not None and version % self._every == 0:
            self._is_due = True

    def soon(self) -> None:
        """Take one after the next all-reduce. May be called by a signal handler."""
        self._is_due = True

    def look(self, worker: int, iteration: int, results: int) -> None:
        """Save the run if it is time to: a worker begins this iteration, as all others will."""
        if not self._is_time(results):
            return
        run = self._run
        iterations = dict.fromkeys(range(run.experiment.workers), iteration)
        own = run.own_states(self._without_lost(iterations))
        self._write(run.state(iterations, run.parameters_of(worker)), own)

    def gather(self, worker: int, results: int, state: Callable[[], ShardState]) -> None:
        """Save a worker if it is time to: others say at other times that they can be saved.

        state: returns what it has beside the model.
        """
        if self._open is None and self._is_time(results) and self._begin_gathering():
            self._open, self._saved = results, {}
        if results != self._open:
            return
        self._saved[worker] = state()
        self._gathered(worker)
        self._write_gathered()

    def _write_gathered(self) -> None:
        """Write the checkpoint of workers that are saved one after the other, if it has all."""
        run, saved = self._run, self._saved
        if len(saved.keys() | self._gone.keys()) < run.experiment.workers:
            return
        self._open = None
        iterations = self._of_all({worker: state.clock for worker, state in saved.items()})
        own = [state for _, state in sorted(saved.items())]
        self._write(run.state(iterations, run.parameters_of(own[0].shard)), own)

    def apart(self, worker: int, iteration: int) -> None:
        """Save the run if it is time to: a worker with a model of its own begins an iteration."""
        self._begins[worker] = iteration
        if self._is_due:
            self._is_due = False
            self._write_apart()

    def _write_apart(self) -> None:
        run, begins = self._run, self._of_all(self._without_lost(self._begins))
        own = run.own_states(self._without_lost(begins))
        self._write(run.state(begins, run.mean()), own)

    def leave(self, worker: int, after: int | None, results: int) -> None:
        """A worker leaves the run, and is not waited for any more.

        Args:
            after: the iteration after its last one; None: it was lost.
            results: of all-reduces that have ended.
        """
        self._gone[worker] = after
        if self._open is None or worker in self._saved:
            return
        if results == self._open:
            self._write_gathered()
        else:  # it had later results, and was not saved before, because it was about to finish
            self._open, self._is_due = None, True

    def _without_lost(self, iterations: Mapping[int, int]) -> dict[int, int]:
        lost = {worker for worker, after in self._gone.items() if after is None}
        return {worker: begins for worker, begins in iterations.items() if worker not in lost}

    def _of_all(self, iterations: Mapping[int, int]) -> dict[int, int]:
        """Add the workers that have left to the iterations with which workers begin."""
        furthest = max(iterations.values())
        left = {n: furthest if after is None else after for n, after in self._gone.items()}
        return left | dict(iterations)

    def _is_time(self, results: int) -> bool:
        """True if a checkpoint is due, and no other worker has had so many results."""
        is_first, self._passed = results > self._passed, max(results, self._passed)
        if not (self._is_due and is_first and self._can_begin):
            return False
        self._is_due = False
        return True

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        """Write a checkpoint, and complete it."""
        self._number += 1
        taken = self._written(state, own)
        if taken is not None:
            assert self._keeper is not None
            commit(self._keeper, taken, self._run.metrics.kept())

    def _written(
        self, state: ShardState, own: Sequence[ShardState], folder: Path | None = None
    ) -> Taken | None:
        """Write the models of a checkpoint; None if they cannot be written.

        folder: that of the checkpoint, if it has been begun already.
        """

        def put(folder: Path) -> Written:
            record, part = write_shard(folder, state, name="common")
            found = [write_shard(folder, each, name=self._name_of(each.shard)) for each in own]
            return Written([record], [part, *(part for _, part in found)], [r for r, _ in found])

        assert self._keeper is not None
        taken = written_now(self._run, self._workload, self._keeper, self._number, put, folder)
        if taken is not None:
            count_until(state.watermarks, taken.totals.iterations)
        return taken

    # -- where scripts are saved, too ------------------------------------------------

    @property
    def _can_begin(self) -> bool:
        """True if a checkpoint may begin now."""
        return True

    def _begin_gathering(self) -> bool:
        """Begin a checkpoint of workers that are saved one after the other; False: it cannot be."""
        return True

    def _gathered(self, worker: int) -> None:
        """Note that the state of a worker has been taken."""

    def _name_of(self, worker: int) -> str:
        """Return the name of the file of a worker's own model, without its suffix."""
        return worker_name(worker)


def count_until(watermarks: Sequence[int], iterations: dict[int, int]) -> None:
    """Count no iterations of workers, by worker, that are not in a checkpoint.

    watermarks: the last iteration of each worker that is.
    """
    for worker, mark in enumerate(watermarks):
        iterations[worker] = min(1 + mark, iterations.get(worker, 0))
