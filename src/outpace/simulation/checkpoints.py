"""Checkpoints in virtual time: what is common to all runs. Writing one takes no virtual time.

`server_checkpoints` and `peer_checkpoints` say when the models are saved. A script writes what it
keeps when it begins an iteration, so its file may come before or after the models.
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
from outpace.engine.resuming import kept_in
from outpace.errors import ConfigError
from outpace.record.checkpoints import Index, Part, ShardRecord, write_shard
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

    def script_saved(self, worker: int, saved: Part | str) -> None:
        """Take the file of a script, or why there is none."""
        self._open.saved(worker, saved)

    def close(self) -> None:
        """Remove what is not complete."""
        self._open.abandon()


class OpenCheckpoint:
    """The checkpoint that is being taken, in the folder of the run; at most one at a time.

    It is complete once it has the models and, of a run of scripts, the file of each script.

    Attributes:
        folder: of a checkpoint whose models are not written yet.
        ended: workers whose scripts have come to their end.
        is_held: a checkpoint with all its files is not complete yet; see `release`.
    """

    def __init__(
        self, run: VirtualRun, workload: Workload, keeper: CheckpointKeeper | None
    ) -> None:
        self._run, self._workload, self._keeper = run, workload, keeper
        self.folder: Path | None = None
        self.ended: set[int] = set()
        self.is_held = False
        self._number: int | None = None
        self._rest: tuple[Index, pa.Table] | None = None  # all but the scripts; the metrics
        self._awaited: set[int] = set()  # workers whose scripts have not written
        self._parts: dict[int, Part] = {}  # by worker
        # By worker: the number of rows in the metrics when its script was saved.
        self._logged: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        """True while a checkpoint has been begun and is not complete."""
        return self._number is not None

    def begin(self, number: int, workers: Iterable[int] | None = None) -> bool:
        """Begin a checkpoint that waits for scripts.

        Returns False if the disk is full, or if the run has no folder.

        workers: those whose scripts are awaited; None: all, of a run of scripts.
        """
        if self._keeper is None:
            return False
        try:
            self.folder = self._keeper.begin(number)
        except OSError as error:
            self._keeper.abandon(number, error.strerror or str(error))
            return False
        every = range(len(self._run.script_processes))
        self._number, self._rest = number, None
        self._awaited = set(every if workers is None else workers)
        self._parts, self._logged = {}, {}
        return True

    # -- the models -------------------------------------------------------------------

    def write(
        self,
        shards: Mapping[str, ShardState],
        own: Mapping[str, ShardState] | None = None,
        add: Callable[[Path], Iterable[Part]] = lambda folder: (),
    ) -> None:
        """Write the models as they are now; complete the checkpoint if all is there.

        Args:
            shards: of the servers, or of the model that all workers have, by name of the file.
            own: of workers without servers.
            add: writes further files into a folder.

        Raises:
            ConfigError: if an optimizer keeps something that cannot be saved.
        """
        run, number, folder = self._run, self._number, self.folder
        assert number is not None
        assert folder is not None
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
            of_script=run.experiment.has_script,
        )
        self._rest, self.folder = (taken, run.metrics.kept()), None
        self._complete()

    # -- scripts ----------------------------------------------------------------------

    def ask(self, workers: Iterable[int]) -> None:
        """Have scripts, if there are any, write what they keep at their next iteration."""
        assert self.folder is not None
        for worker in workers if self._run.script_processes else ():
            path = self.folder / kept_in(worker)
            self._run.script_processes[worker].save = path.absolute()

    def awaits(self, worker: int) -> bool:
        """True if the open checkpoint lacks the file of this worker's script."""
        return self.is_open and worker in self._awaited

    @property
    def shards(self) -> Sequence[ShardRecord]:
        """The records of the models, once they are written; of a checkpoint that lacks scripts."""
        return () if self._rest is None else self._rest[0].shards

    @property
    def lacks_models_only(self) -> bool:
        """True if all scripts have written, and the models have not been written."""
        return self.is_open and not self._awaited and self._rest is None

    def saved(self, worker: int, saved: Part | str | None) -> None:
        """Take the file of a script, or why there is none; None: the script has ended."""
        if not self.is_open or worker not in self._awaited:
            return
        if isinstance(saved, str):
            self.abandon(saved)
            return
        self._awaited.discard(worker)
        self._logged[worker] = len(self._run.metrics)
        if saved is not None:
            self._parts[worker] = saved
        self._complete()

    # -- the end ----------------------------------------------------------------------

    def abandon(self, why: str = "") -> None:
        """Remove what is not complete. why: the problem, for the user; empty if there is none."""
        if self._number is not None and self._keeper is not None:
            self._keeper.abandon(self._number, why)
        self._number = self._rest = self.folder = None
        self.is_held = False
        for process in self._run.script_processes:
            process.save = None

    def release(self) -> None:
        """Complete the checkpoint that was held, if all is there."""
        self.is_held = False
        self._complete()

    def _complete(self) -> None:
        if self._rest is None or self._keeper is None or self._awaited or self.is_held:
            return
        (taken, metrics), self._number, self._rest = self._rest, None, None
        if self._logged:
            metrics = logged_until(self._run.metrics.kept(), self._logged)
        taken = structs.replace(
            taken,
            parts=(*taken.parts, *(part for _, part in sorted(self._parts.items()))),
            anew=tuple(
                process.worker
                for process in self._run.script_processes
                if process.begins_anew and process.worker in self._parts
            ),
            ended=tuple(sorted(self.ended - self._parts.keys())),
        )
        try:
            self._keeper.commit(taken, metrics)
        except OSError as error:
            self._keeper.abandon(taken.number, error.strerror or str(error))


def logged_until(rows: pa.Table, counts: Mapping[int, int]) -> pa.Table:
    """Return the rows that each script had logged when it was saved; the others come again.

    counts: by worker, the number of rows of all workers at that time. A worker that is not in it
    had left the run before, and all its rows are kept.
    """
    workers = rows["worker"].to_pylist()
    kept = [n < counts.get(worker, len(rows)) for n, worker in enumerate(workers)]
    return rows.filter(pa.array(kept, pa.bool_()))


def count_until(watermarks: Sequence[int], iterations: dict[int, int]) -> None:
    """Count no iterations of workers, by worker, that are not in a checkpoint.

    watermarks: the last iteration of each worker that is.
    """
    for worker, mark in enumerate(watermarks):
        iterations[worker] = min(1 + mark, iterations.get(worker, 0))
