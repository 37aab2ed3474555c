"""The checkpoints of a run: written as a whole, read again, the oldest removed.

After a power failure at any moment, the earlier checkpoints exist, and perhaps the new one:

1. The parts and index.json are written into `000012.part`, and each is on the disk (fsync).
2. The names in that folder are on the disk.
3. The folder is renamed to `000012`, and the new name is on the disk.
4. Only then are older checkpoints removed. They are renamed to `.part` first, because a folder
   cannot be removed in one step.

So a folder without `.part` is whole. Checksums find later damage by the disk.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import ConfigError
from outpace.record.checkpoints.committed import INDEX, Damaged, committed, index_json
from outpace.record.checkpoints.index import Index
from outpace.record.checkpoints.reading import Checkpoint
from outpace.record.checkpoints.tensors import write_bytes, written
from outpace.record.folder import CHECKPOINTS, CONFIG, METRICS
from outpace.support.notices import warn
from outpace.support.replacing import sync

_PARTIAL: Final = ".part"


class Checkpoints:
    """The checkpoints in the folder of a run; the newest `keep` checkpoints are kept."""

    def __init__(self, run: Path, keep: int = 3) -> None:
        self._run, self._folder, self._keep = run, run / CHECKPOINTS, keep

    # -- writing -----------------------------------------------------------------

    def begin(self, number: int) -> Path:
        """Make the folder into which the parts of a checkpoint are written. Raises OSError."""
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            for config in self._run.glob(CONFIG):  # without it no checkpoint can be used
                sync(config)
            sync(self._run)
        path = self._partial(number)
        path.mkdir()
        return path

    def commit(self, index: Index, metrics: pa.Table) -> Path:
        """Complete a checkpoint whose parts are on the disk, and remove the oldest.

        Returns:
            The folder of the checkpoint.

        Raises:
            OSError: if it cannot be written. Then call `abandon`.
        """
        partial, path = self._partial(index.number), self.path(index.number)
        pq.write_table(metrics, partial / METRICS)
        parts = (*index.parts, written(partial / METRICS))
        index = msgspec.structs.replace(index, parts=parts)
        write_bytes(partial / INDEX, index_json(index))
        sync(partial)
        partial.rename(path)
        sync(self._folder)
        self._prune()
        return path

    def abandon(self, number: int) -> None:
        """Remove the files of a checkpoint that was not committed.

        A file that cannot be removed now, because a process still writes it, is removed when the
        next checkpoint is complete, or when the run has ended.
        """
        shutil.rmtree(self._partial(number), ignore_errors=True)
        with contextlib.suppress(OSError):  # the folder has other checkpoints
            self._folder.rmdir()

    def end(self) -> None:
        """Remove uncommitted files, as far as possible; the processes have ended."""
        for path in self._folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # the folder has checkpoints
            self._folder.rmdir()

    def clean(self, after: int | None = None) -> None:
        """Remove uncommitted files while no process writes checkpoints.

        after: number of the checkpoint from which a run is resumed; later ones are also removed.
        Raises OSError.
        """
        for number in self.numbers() if after is not None else ():
            if after is not None and number > after:
                self._remove(number)
        for path in self._folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(path)

    def _prune(self) -> None:
        """Remove all but the newest checkpoints, and the rest of abandoned ones.

        Files that cannot be removed remain. Call this while no checkpoint is being written.
        """
        for path in self._folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(path, ignore_errors=True)
        for number in self.numbers()[: -self._keep]:
            with contextlib.suppress(OSError):
                self._remove(number)

    def _remove(self, number: int) -> None:
        partial = self._partial(number)
        self.path(number).rename(partial)
        shutil.rmtree(partial)

    # -- reading -----------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the numbers of the checkpoints that were committed, ascending."""
        return committed(self._run)

    def newest(self, say: Callable[[str], None] = warn) -> Checkpoint | None:
        """Return the newest checkpoint that is not damaged; None if there are no checkpoints.

        say: called with a line about each damaged checkpoint that is skipped.

        Raises:
            ConfigError: if all are damaged, or a newer version of Outpace wrote them.
        """
        problems = []
        for number in reversed(self.numbers()):
            try:
                checkpoint = Checkpoint(self.path(number))
                checkpoint.check()
            except Damaged as error:
                problems.append(str(error))
                continue
            for problem in problems:
                say(f"{problem}; {checkpoint.name} is used instead")
            return checkpoint
        if problems:
            found = "; ".join(problems)
            raise ConfigError(f"{self._run}: no checkpoint can be used: {found}; start again")
        return None

    def path(self, number: int) -> Path:
        """Return the folder of a checkpoint."""
        return self._folder / f"{number:06d}"

    def _partial(self, number: int) -> Path:
        return self._folder / f"{number:06d}{_PARTIAL}"
