"""What an engine needs to save checkpoints, and to go on from one, in every runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.record.checkpoints import Checkpoint, Taken
from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run goes on.

    Attributes:
        checkpoint: whole and undamaged.
        slices: of the flat parameters, one for each server of the run that goes on.
        workers: their number in the run that goes on.
        first: the first iteration of each of them.
        recovery: the counts of the run, with what is lost by going on from here.
    """

    checkpoint: Checkpoint
    slices: list[slice]
    workers: int
    first: list[int]
    recovery: Recovery

    @classmethod
    def of(cls, checkpoint: Checkpoint, experiment: Experiment) -> ResumePoint:
        """Return where an experiment goes on, which may have other servers and workers.

        Raises ConfigError if the parameters cannot be divided among the servers.
        """
        index, workers = checkpoint.index, experiment.workers
        slices = experiment.slices(index.layers)
        before = index.recovery
        return cls(
            checkpoint,
            slices,
            workers,
            checkpoint.first_iterations(workers),
            Recovery(
                restarts=before.restarts,
                updates_lost=before.updates_lost + checkpoint.updates_lost(slices, workers),
                resumed_from=checkpoint.name,
            ),
        )

    @property
    def number(self) -> int:
        """The number of the checkpoint."""
        return self.checkpoint.index.number

    @property
    def now(self) -> Time:
        """The time of the run at the checkpoint."""
        return self.checkpoint.index.now

    @property
    def updates(self) -> int:
        """The updates until the checkpoint, as `evaluate.every_updates` counts them."""
        return self.checkpoint.index.updates

    @property
    def totals(self) -> Totals:
        """The sums until the checkpoint. A copy."""
        totals = Totals()
        totals.add(self.checkpoint.index.totals)
        return totals

    def metrics(self) -> pa.Table:
        """Return the metrics until the checkpoint, for `Metrics.take_up`. Raises OSError."""
        return self.checkpoint.metrics()

    def state(self, server: int) -> ShardState:
        """Return the state with which a server begins; reads only the files that it needs.

        A server in another process makes a `Checkpoint` of its path and calls `shard_state`.

        Raises:
            ConfigError: if the task has another number of parameters now.
            OSError: if a file cannot be read.
        """
        return self.checkpoint.shard_state(server, self.slices, self.workers)


class CheckpointKeeper(Protocol):
    """Where an engine keeps its checkpoints: the folder of its run.

    At most one checkpoint is open at a time, from `begin` to `commit` or `abandon`.
    """

    @property
    def last(self) -> int:
        """The number of the last checkpoint of the run; 0: there is none yet."""

    def begin(self, number: int) -> Path:
        """Make the folder for the parts of a checkpoint (`write_shard`). Raises OSError."""

    def commit(self, taken: Taken, metrics: pa.Table) -> None:
        """Complete a checkpoint whose parts are on the disk.

        The trace until then is made durable with it, so it is flushed before.

        Args:
            metrics: as `Metrics.state` returns them.

        Raises:
            OSError: if it cannot be written. Then it is to be abandoned.
        """

    def abandon(self, number: int, why: str = "") -> None:
        """Remove what was written of a checkpoint.

        why: the problem, which is told to the user; empty if there is none.
        """
