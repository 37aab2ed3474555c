"""Checkpoints of a run without servers in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from outpace.config.goals import Checkpoint
from outpace.engine.keeper import CheckpointKeeper
from outpace.simulation.checkpoints import Saving
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import worker_name
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.faults.held_rows import CheckpointInMemory
    from outpace.simulation.peers import Peers
    from outpace.simulation.virtual import VirtualRun


class PeerSaving(Saving):
    """Takes the checkpoints of a run when its strategy says that it may (`PeerContext.may_save`).

    A checkpoint is taken when the first worker has the result of an all-reduce. At that time no
    worker has taken a step since it joined, and all will have the same parameters. So the common
    model and the states of the workers' own optimizers are saved at once. If workers accumulate
    gradients during an all-reduce, each worker is saved when it has the result; no worker can have
    the next result before all have this one. Workers with separate models
    (`PeerStrategy.saved_apart`) are saved together after an iteration of any of them; the
    iterations that the others are computing then are repeated. The checkpoint does not wait for
    workers that have left the run. If the run continues from the checkpoint, a worker that was lost
    begins again with the others, and a worker that had finished has nothing left to do.

    Args:
        exchange: the exchange whose models are saved.
    """

    def __init__(
        self,
        run: VirtualRun,
        exchange: Peers,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        super().__init__(run, workload, keeper, settings)
        self._exchange, self._initial = exchange, exchange.initial
        self._passed = -1  # number of all-reduce results that a worker has had
        self._results: int | None = None  # number of results after which each worker is saved
        self._saved: dict[int, ShardState] = {}  # by worker
        first = run.resume.first if run.resume else [0] * run.experiment.workers
        self._begins = dict(enumerate(first))  # by worker: the iteration that it is computing
        # For workers that have left: the iteration after the last one; None: the worker was lost.
        self._gone: dict[int, int | None] = {}

    def begin(self) -> None:
        point, life = self._run.resume, self._life
        if not self._number:
            self._write(self._exchange.state(dict.fromkeys(self._workers, 0), self._initial))
        # the iterations with which workers begin from this checkpoint
        elif life.keeps_in_memory and point is not None:
            own = [state for state in point.own_states() if state is not None]
            kept = life.kept(self._number, [point.state(0)], own)
            assert kept is not None
            life.keep(kept)

    def begin_again(self, kept: CheckpointInMemory) -> None:
        """Continue with the models of the last checkpoint."""
        self._is_due, self._results = False, None
        self._passed = kept.states[0].version
        self._saved.clear()
        self._gone.clear()
        self._begins = dict(enumerate(kept.first))

    def look(self, worker: int, iteration: int, results: int) -> None:
        """Save the run if a checkpoint is due, when a worker begins an iteration that all begin."""
        if not self._is_time(results):
            return
        iterations = dict.fromkeys(self._workers, iteration)
        models = self._exchange.models
        own = models.own_states(self._without_lost(iterations))
        self._write(self._exchange.state(iterations, models.parameters_of(worker)), own)

    def gather(self, worker: int, results: int, state: Callable[[], ShardState]) -> None:
        """Save a worker if a checkpoint is due; the others are saved at other times.

        state: returns the worker's state in addition to the common model.
        """
        if self._results is None and self._is_time(results):
            self._results, self._saved = results, {}
        if results != self._results:
            return
        self._saved[worker] = state()
        self._write_gathered()

    def _write_gathered(self) -> None:
        """Write the checkpoint of workers that are saved one by one, if it has all of them."""
        saved = self._saved
        if len(saved.keys() | self._gone.keys()) < len(self._workers):
            return
        self._results = None
        iterations = self._of_all({worker: state.clock for worker, state in saved.items()})
        own = [state for _, state in sorted(saved.items())]
        parameters = self._exchange.models.parameters_of(own[0].shard)
        self._write(self._exchange.state(iterations, parameters), own)

    def apart(self, worker: int, iteration: int) -> None:
        """Save the run if one is due, as a worker with its own model begins an iteration."""
        self._begins[worker] = iteration
        if not self._is_due:
            return
        self._is_due = False
        begins = self._of_all(self._without_lost(self._begins))
        models = self._exchange.models
        own = models.own_states(self._without_lost(begins))
        self._write(self._exchange.state(begins, models.mean), own)

    def leave(self, worker: int, after: int | None, results: int) -> None:
        """Note that a worker leaves the run; do not wait for it any more.

        Args:
            after: the iteration after its last one; None: the worker was lost.
            results: number of all-reduces that have ended.
        """
        self._gone[worker] = after
        if self._results is None or worker in self._saved:
            return
        if results == self._results:
            self._write_gathered()
        # the worker had later results; it was not saved before because it was about to finish
        else:
            self._results, self._is_due = None, True

    def _without_lost(self, iterations: Mapping[int, int]) -> dict[int, int]:
        lost = {worker for worker, after in self._gone.items() if after is None}
        return {worker: begins for worker, begins in iterations.items() if worker not in lost}

    def _of_all(self, iterations: Mapping[int, int]) -> dict[int, int]:
        """Add the workers that have left to the iterations with which workers begin."""
        furthest = max(iterations.values())
        left = {n: furthest if after is None else after for n, after in self._gone.items()}
        return left | dict(iterations)

    def _is_time(self, results: int) -> bool:
        """True if a checkpoint is due, and no other worker has had this many results."""
        is_first, self._passed = results > self._passed, max(results, self._passed)
        if not (self._is_due and is_first):
            return False
        self._is_due = False
        return True

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        """Write the models of a checkpoint."""
        self._number += 1
        named = {worker_name(each.shard): each for each in own}
        self._take(self._number, {"common": state}, named)
