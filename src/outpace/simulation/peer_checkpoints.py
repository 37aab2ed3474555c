"""Checkpoints of a run without servers in virtual time, after an all-reduce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outpace.blocks.block import Phantom, Value
from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper
from outpace.optim import OptimizerState
from outpace.record.checkpoints import write_shard
from outpace.simulation.checkpoints import Written, write
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import worker_name
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.peers import PeerSimulation


class PeerSaving:
    """Takes the checkpoints of a run when its strategy says that it may (`PeerContext.may_save`).

    The first worker that has the result of an all-reduce says so first. Then no worker has taken a
    step since it joined, and all will have the same parameters. So one model is saved, and what the
    optimizers of the workers' own models remember.
    """

    def __init__(
        self,
        run: PeerSimulation,
        workload: Workload,
        keeper: CheckpointKeeper,
        settings: Checkpoint,
    ) -> None:
        self._run, self._workload, self._keeper = run, workload, keeper
        self._every = settings.every_updates
        self._number = keeper.last
        self._iteration = -1  # the last one that a worker has said it would begin
        self._is_due = False

    def begin(self) -> None:
        """Take the first checkpoint of a run that has none; before any event."""
        if not self._keeper.last:
            self._is_due = True
            self.look(0, self._run.initial)

    def updated(self, version: int) -> None:
        """Note that the model has this version."""
        if self._every is not None and version % self._every == 0:
            self._is_due = True

    def soon(self) -> None:
        """Take one after the next all-reduce. May be called by a signal handler."""
        self._is_due = True

    def look(self, iteration: int, parameters: Value) -> None:
        """Save the run if it is time to.

        Args:
            iteration: that a worker begins next.
            parameters: that it has, and that all will have.
        """
        is_first, self._iteration = iteration > self._iteration, max(iteration, self._iteration)
        if self._is_due and is_first:
            self._is_due = False
            self._number += 1
            run, number = self._run, self._number
            state = run.state(iteration, parameters)
            own = run.own_optimizers()

            def put(folder: Path) -> Written:
                found = [write_shard(folder, state, name="common")]
                for worker, optimizer in enumerate(own):
                    each = _of_worker(worker, iteration, optimizer)
                    found.append(write_shard(folder, each, name=worker_name(worker)))
                records = [record for record, _ in found]
                return Written(records[:1], [part for _, part in found], records[1:])

            write(run, self._workload, self._keeper, number, put)


def _of_worker(worker: int, iteration: int, optimizer: OptimizerState) -> ShardState:
    """Return the state of a worker's optimizer, without parameters."""
    return ShardState(
        shard=worker,
        clock=iteration,
        version=0,
        watermarks=(),
        gone=(),
        pushes=0,
        furthest=0.0,
        mixed=-1,
        parameters=Phantom(0),
        optimizer=optimizer,
    )
