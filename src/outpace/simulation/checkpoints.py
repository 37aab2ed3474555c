"""Checkpoints in virtual time: what is common to all runs. Writing one takes no virtual time.

`server_checkpoints` and `peer_checkpoints` say when the models are saved. Scripts are not saved in
virtual time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from outpace.config.goals import Checkpoint
from outpace.engine.keeper import CheckpointKeeper
from outpace.errors import ConfigError
from outpace.record.checkpoints import Index, Part, write_shard
from outpace.sync.checkpoint.state import ShardState
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class Saving(ABC):
    """Takes the checkpoints of a run.

    Args:
        keeper: where they go; None: they are kept in memory alone.
        settings: when to take one.
    """

    def __init__(
        self,
        run: VirtualRun,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        self._life, self._every = run.life, settings.every_updates
        self._number = 0 if keeper is None else keeper.last
        self._is_due = False
        self._workers = range(run.experiment.workers)
        self._open = OpenCheckpoint(run, workload, keeper)

    @abstractmethod
    def begin(self) -> None:
        """Take the first checkpoint of a run that has none; before any event."""

    def updated(self, version: int) -> None:
        """Note that the evaluated parameters have this version."""
        if self._every is not None and version % self._every == 0:
            self._is_due = True

    def soon(self) -> None:
        """Take one as soon as possible. May be called by a signal handler."""
        if not self._life.is_down:
            self._is_due = True

    def now(self) -> None:
        """Take one now, where that is possible between two events; else as `soon`."""
        self.soon()

    def close(self) -> None:
        """Remove what is not complete."""
        self._open.abandon()


class OpenCheckpoint:
    """The checkpoint that is being taken, in the folder of the run; at most one at a time.

    Attributes:
        is_held: a checkpoint with all its files is not complete yet; see `release`.
    """

    def __init__(
        self, run: VirtualRun, workload: Workload, keeper: CheckpointKeeper | None
    ) -> None:
        self._run, self._workload, self._keeper = run, workload, keeper
        self.is_held = False
        self._number: int | None = None
        self._written: tuple[Index, pa.Table] | None = None  # the index and the metrics

    @property
    def is_open(self) -> bool:
        """True while a checkpoint has been begun and is not complete."""
        return self._number is not None

    def write(
        self,
        number: int,
        shards: Mapping[str, ShardState],
        own: Mapping[str, ShardState] | None = None,
        add: Callable[[Path], Iterable[Part]] = lambda folder: (),
    ) -> None:
        """Write the models as they are now, and complete the checkpoint unless it is held.

        Nothing is written if the disk is full, or if the run has no folder.

        Args:
            shards: of the servers, or of the model that all workers have, by name of the file.
            own: of workers without servers.
            add: writes further files into a folder.

        Raises:
            ConfigError: if an optimizer keeps something that cannot be saved.
        """
        if self._keeper is None:
            return
        run, self._number = self._run, number
        try:
            folder = self._keeper.begin(number)
        except OSError as error:
            self.abandon(error.strerror or str(error))
            return
        run.settle(wait=True)  # the evaluations until now
        try:
            written = [write_shard(folder, state, name) for name, state in shards.items()]
            others = [write_shard(folder, state, name) for name, state in (own or {}).items()]
            parts = [*(part for _, part in (*written, *others)), *add(folder)]
        except OSError as error:
            self.abandon(error.strerror or str(error))
            return
        except ConfigError:
            self.abandon()
            raise
        totals = run.totals.copy()
        if run.experiment.peers is not None:
            count_until(written[0][0].watermarks, totals.iterations)
        taken = Index(
            number=number,
            now=run.kernel.now,
            updates=run.updates,
            parts=tuple(parts),
            shards=tuple(record for record, _ in written),
            own=tuple(record for record, _ in others),
            totals=totals,
            bounds=(0, *(each.stop for each in run.slices)),
            layers=tuple(self._workload.layers),
            layout=self._workload.layout,
            recovery=structs.replace(run.events.recovery),
            costs=run.life.costs(),
        )
        self._written = taken, run.metrics.kept()
        self._complete()

    def abandon(self, why: str = "") -> None:
        """Remove what is not complete. why: the problem, for the user; empty if there is none."""
        if self._number is not None and self._keeper is not None:
            self._keeper.abandon(self._number, why)
        self._number = self._written = None
        self.is_held = False

    def release(self) -> None:
        """Complete the checkpoint that was held, if all is there."""
        self.is_held = False
        self._complete()

    def _complete(self) -> None:
        if self._written is None or self._keeper is None or self.is_held:
            return
        (taken, metrics), self._number, self._written = self._written, None, None
        try:
            self._keeper.commit(taken, metrics)
        except OSError as error:
            self._keeper.abandon(taken.number, error.strerror or str(error))


def count_until(watermarks: Sequence[int], iterations: dict[int, int]) -> None:
    """Count no iterations of workers, by worker, that are not in a checkpoint.

    watermarks: the last iteration of each worker that is.
    """
    for worker, mark in enumerate(watermarks):
        iterations[worker] = min(1 + mark, iterations.get(worker, 0))
