"""Takes the checkpoints of scripts without servers in virtual time whose workers fail.

The models are kept in memory, what scripts keep in files of a temporary folder. If the run has a
folder, the same checkpoint is written there, too. One that cannot be completed there, because the
disk is full, counts all the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper, kept_in
from outpace.engine.scripts.redividing import redivided, script_files
from outpace.record.checkpoints import Checkpoint as SavedRun
from outpace.record.checkpoints import Taken
from outpace.simulation.checkpoints import Written, written_now
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.saving import Kept
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.without_servers.saving import ScriptPeerSaving
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.faults.failing import FailingRun


class KeptFiles:
    """The files of scripts at the last checkpoint. Implements `CheckpointKeeper`.

    Args:
        workers: number of workers.
        keeper: of the run's folder; None: it has none.
        complete: called with each checkpoint once all its files are there, with its metrics and
            the files of scripts by worker.
    """

    def __init__(
        self,
        workers: int,
        keeper: CheckpointKeeper | None,
        complete: Callable[[Taken, pa.Table, Mapping[int, Path]], None],
    ) -> None:
        self._workers, self._keeper, self._complete = workers, keeper, complete
        self._own = TemporaryDirectory(prefix="outpace-scripts-")
        self._open = Path()  # the folder of the checkpoint that is not complete
        self.last = 0 if keeper is None else keeper.last

    @property
    def folder(self) -> Path | None:
        return None if self._keeper is None else self._keeper.folder

    def begin(self, number: int) -> Path:
        if self._keeper is not None:
            self._open = self._keeper.begin(number)
        else:
            self._open = self._path(number)
            self._open.mkdir()
        return self._open

    def commit(self, taken: Taken, metrics: pa.Table) -> None:
        path = self._path(taken.number)
        path.mkdir(exist_ok=True)
        files = {n: path / kept_in(n) for n in range(self._workers)}
        if self._keeper is not None:
            for file in files.values():
                shutil.copyfile(self._open / file.name, file)
        self._complete(taken, metrics, files)
        shutil.rmtree(self._path(self.last), ignore_errors=True)
        self.last = taken.number
        if self._keeper is not None:
            self._keeper.commit(taken, metrics)

    def abandon(self, number: int, why: str = "") -> None:
        if self._keeper is not None:
            self._keeper.abandon(number, why)
        if number != self.last:  # else it counts
            shutil.rmtree(self._path(number), ignore_errors=True)

    def go_back(self) -> SavedRun:
        raise NotImplementedError("in virtual time a run goes back in memory")

    def close(self) -> None:
        """Remove the files."""
        self._own.cleanup()

    def _path(self, number: int) -> Path:
        return Path(self._own.name) / str(number)


class KeptScriptPeerSaving(KeepsLast, ScriptPeerSaving):
    """Takes the checkpoints of a run of scripts with failures.

    Args:
        keeper: of the run's folder; None: it has none.
        others: as for `ScriptPeerSaving`.
    """

    def __init__(
        self,
        run: FailingRun,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
        processes: Sequence[ScriptProcess],
        *others: Any,
    ) -> None:
        self._kept_files = KeptFiles(len(processes), keeper, self._complete)
        self._failing, self._is_written = run, keeper is not None
        # The checkpoint that is not complete, and for how long the workers stand still for it (ns).
        self._coming: tuple[Kept, Time] | None = None
        rest: Any = (run, workload, self._kept_files, settings, processes, *others)
        super().__init__(*rest)

    def _before(self) -> Kept:
        resume = self._failing.resume
        assert resume is not None
        anew = resume.checkpoint.index.anew
        files, others = script_files(resume), redivided(resume)
        return replace(super()._before(), scripts=files, redivided=others, anew=anew)

    def _written(
        self, state: ShardState, own: Sequence[ShardState], folder: Path | None = None
    ) -> Taken | None:
        self._coming = self._taken(self._number, state, own), self._stand_still(state, own)
        if self._is_written:
            return super()._written(state, own, folder)
        nothing = Written([], [])
        run, files = self._run, self._kept_files
        return written_now(run, self._workload, files, self._number, lambda _: nothing, folder)

    def _complete(self, taken: Taken, metrics: pa.Table, files: Mapping[int, Path]) -> None:
        assert self._coming is not None
        (kept, writing), self._coming = self._coming, None
        failing = self._failing
        kept.hand_on(failing.rows)
        self.last = replace(kept, metrics=metrics, scripts=files, anew=taken.anew)
        failing.checkpoint_written(writing, still=kept.now + writing - failing.kernel.now)

    def begin_again(self, kept: Kept) -> None:
        super().begin_again(kept)
        self._scripts.abandon()
        self._give_up()
        self._has_left = False

    def remove_files(self) -> None:
        """Remove the files with which scripts go on, once the processes have ended."""
        self._kept_files.close()
