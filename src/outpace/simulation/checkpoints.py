"""The common part of checkpoints in virtual time. Writing a checkpoint takes no virtual time.

`server_checkpoints` and `peer_checkpoints` decide when the models are saved. Scripts are not saved
in virtual time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import structs

from outpace.config.goals import Checkpoint
from outpace.engine.keeper import CheckpointKeeper
from outpace.record.checkpoints import Index, write_shard
from outpace.sync.checkpoint.state import ShardState
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class Saving(ABC):
    """Takes the checkpoints of a run.

    Args:
        keeper: stores the checkpoints; None: they are kept only in memory.
        settings: when to take a checkpoint.
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
        self._run, self._workload, self._keeper = run, workload, keeper

    @abstractmethod
    def begin(self) -> None:
        """Take the first checkpoint of a run that has none; before any event."""

    def updated(self, version: int) -> None:
        """Note that the evaluated parameters have this version."""
        if self._every is not None and version % self._every == 0:
            self._is_due = True

    def soon(self) -> None:
        """Take a checkpoint as soon as possible. A signal handler may call this."""
        if not self._life.is_down:
            self._is_due = True

    def now(self) -> None:
        """Take a checkpoint now, if that is possible between two events; otherwise as `soon`."""
        self.soon()

    def _take(
        self,
        number: int,
        shards: Mapping[str, ShardState],
        own: Mapping[str, ShardState] = MappingProxyType({}),
    ) -> None:
        """Take a checkpoint: in memory if processes fail in this run, and in its folder.

        Arguments as for `write_checkpoint`.
        """
        kept = self._life.kept(number, list(shards.values()), list(own.values()))
        if kept is not None:
            self._life.keep(kept)
        if self._keeper is not None:
            write_checkpoint(self._run, self._workload, self._keeper, number, shards, own)


def write_checkpoint(
    run: VirtualRun,
    workload: Workload,
    keeper: CheckpointKeeper,
    number: int,
    shards: Mapping[str, ShardState],
    own: Mapping[str, ShardState],
) -> None:
    """Write the present models into the folder of the run; write nothing if the disk is full.

    Args:
        shards: shards of the servers, or of the model that all workers have, by name of the file.
        own: state of the workers of a run without servers.

    Raises:
        ConfigError: if an optimizer has state that cannot be saved.
    """
    try:
        folder = keeper.begin(number)
        written = [write_shard(folder, state, name) for name, state in shards.items()]
        others = [write_shard(folder, state, name) for name, state in own.items()]
        totals = run.totals.copy()
        if run.experiment.peers is not None:
            count_until(written[0][0].watermarks, totals.iterations)
        taken = Index(
            number=number,
            now=run.kernel.now,
            updates=run.updates,
            parts=tuple(part for _, part in (*written, *others)),
            shards=tuple(record for record, _ in written),
            own=tuple(record for record, _ in others),
            totals=totals,
            bounds=(0, *(each.stop for each in run.slices)),
            layers=tuple(workload.layers),
            layout=workload.layout,
            recovery=structs.replace(run.events.recovery),
            costs=run.life.costs(),
        )
        keeper.commit(taken, run.metrics.kept())
    except OSError as error:
        keeper.abandon(number, error.strerror or str(error))
    except BaseException:
        keeper.abandon(number)
        raise


def count_until(watermarks: Sequence[int], iterations: dict[int, int]) -> None:
    """Remove from the counts the iterations of each worker that the checkpoint does not contain.

    watermarks: for each worker, the last iteration that the checkpoint contains.
    """
    for worker, mark in enumerate(watermarks):
        iterations[worker] = min(1 + mark, iterations.get(worker, 0))
