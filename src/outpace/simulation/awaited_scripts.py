"""Checkpoints in virtual time that lack nothing but the files of scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from outpace.engine.resuming import CheckpointKeeper, kept_in
from outpace.record.checkpoints import Part, Taken

if TYPE_CHECKING:
    from outpace.simulation.scripts.process import ScriptProcess
    from outpace.simulation.virtual import VirtualRun


class AwaitedScripts:
    """Completes one checkpoint at a time, once each script has written its file.

    A script writes when it begins an iteration, so its file may come before or after the state of
    the models.

    Args:
        keeper: where checkpoints go; None: the run is not saved, and nothing may be begun.
        may_complete: returns False while a checkpoint with all its files is not complete yet.
        processes: of the scripts, for `open` and `ask`.

    Attributes:
        folder: of a checkpoint that was opened and whose models are not written yet.
    """

    def __init__(
        self,
        run: VirtualRun,
        keeper: CheckpointKeeper | None,
        may_complete: Callable[[], bool] = lambda: True,
        processes: Sequence[ScriptProcess] = (),
    ) -> None:
        self._processes = processes
        self.folder: Path | None = None
        self._run, self._keeper, self._may_complete = run, keeper, may_complete
        self._number: int | None = None  # of the checkpoint that is not complete
        self._rest: tuple[Taken, pa.Table] | None = None  # all but the scripts; the metrics
        self._awaited: set[int] = set()  # workers
        self._parts: dict[int, Part] = {}  # by worker
        # By worker: the number of rows in the metrics when its script was saved.
        self._logged: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        """True while a checkpoint has been begun and is not complete."""
        return self._number is not None

    @property
    def lacks_models(self) -> bool:
        """True if all scripts have written, and the models have not been written."""
        return self.is_open and not self._awaited and self._rest is None

    def open(self, number: int) -> bool:
        """Begin a checkpoint that waits for all scripts. Return False if the disk is full."""
        assert self._keeper is not None
        try:
            self.folder = self._keeper.begin(number)
        except OSError as error:
            self._keeper.abandon(number, error.strerror or str(error))
            return False
        self.begin(number, range(len(self._processes)))
        return True

    def ask(self, workers: Iterable[int]) -> None:
        """Have scripts write what they keep when they begin their next iteration."""
        assert self.folder is not None
        for worker in workers:
            self._processes[worker].save = (self.folder / kept_in(worker)).absolute()

    def stop_asking(self, workers: Iterable[int]) -> None:
        """Have these scripts write no more."""
        for worker in workers:
            self._processes[worker].save = None

    def begin(self, number: int, workers: Iterable[int]) -> None:
        """Begin a checkpoint whose folder is there, and wait for the scripts of these workers."""
        self._number, self._rest, self._awaited = number, None, set(workers)
        self._parts, self._logged = {}, {}

    def awaits(self, worker: int) -> bool:
        """True if the open checkpoint lacks the file of this worker's script."""
        return self.is_open and worker in self._awaited

    def await_again(self, worker: int) -> None:
        """Wait for another file of a script, in place of the one that is there."""
        self._awaited.add(worker)

    def add_rest(self, taken: Taken, metrics: pa.Table) -> None:
        """Take what the checkpoint has beside the scripts; complete it if all is there."""
        self._rest, self.folder = (taken, metrics), None
        self.complete()

    def saved(self, worker: int, saved: Part | str | None) -> None:
        """Take the file of a script, or why there is none; None: the script has ended.

        A later file of the same script takes the place of the former one.
        """
        is_again = saved is not None and worker in self._parts
        if not self.is_open or not (worker in self._awaited or is_again):
            return
        if isinstance(saved, str):
            self.abandon(saved)
            return
        self._awaited.discard(worker)
        self._logged[worker] = self._run.metrics.rows
        if saved is not None:
            self._parts[worker] = saved
        self.complete()

    def abandon(self, why: str = "") -> None:
        """Remove what is not complete. why: the problem, for the user; empty if there is none."""
        if self._number is not None and self._keeper is not None:
            self._keeper.abandon(self._number, why)
        self.forget()

    def forget(self) -> None:
        """Wait for nothing any more: the checkpoint has been abandoned."""
        self._number = self._rest = self.folder = None
        self.stop_asking(range(len(self._processes)))

    def complete(self) -> None:
        """Complete the checkpoint if all is there."""
        if self._rest is None or self._keeper is None or self._awaited:
            return
        if not self._may_complete():
            return
        (taken, metrics), self._number, self._rest = self._rest, None, None
        files = tuple(part for _, part in sorted(self._parts.items()))
        if self._logged:
            metrics = logged_until(self._run.metrics.kept(), self._logged)
        anew = tuple(worker for worker in self._run.scripts_anew() if worker in self._parts)
        ended = tuple(sorted(set(self._run.scripts_at_end()) - self._parts.keys()))
        taken = structs.replace(taken, parts=(*taken.parts, *files), anew=anew, ended=ended)
        commit(self._keeper, taken, metrics)


def commit(keeper: CheckpointKeeper, taken: Taken, metrics: pa.Table) -> None:
    """Complete a checkpoint whose files are written, or abandon it if the disk is full."""
    try:
        keeper.commit(taken, metrics)
    except OSError as error:
        keeper.abandon(taken.number, error.strerror or str(error))


def logged_until(rows: pa.Table, counts: Mapping[int, int]) -> pa.Table:
    """Return the rows that each script had logged when it was saved; the others come again.

    counts: by worker, the number of rows of all workers at that time. A worker that is not in it
    had left the run before, and all its rows are kept.
    """
    workers = rows["worker"].to_pylist()
    kept = [n < counts.get(worker, len(rows)) for n, worker in enumerate(workers)]
    return rows.filter(pa.array(kept, pa.bool_()))
