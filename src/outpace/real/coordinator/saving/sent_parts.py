"""Checkpoints of workers without servers that do not see the folder of the run.

Their files are fetched (`fetched_parts`). So the mean of models that differ is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from outpace.blocks.block import Phantom, Value
from outpace.engine.resuming import kept_in, model_of
from outpace.errors import OutpaceError, ProtocolError
from outpace.real.coordinator.saving.of_workers import CheckpointsOfWorkers, Groups, OpenOfWorkers
from outpace.real.coordinator.saving.open import Open, SavedRun
from outpace.real.net.checkpoint_messages import CheckpointPart
from outpace.real.node.saving.of_worker import COMMON, SavedMean, SavedWorker
from outpace.record.checkpoints import write_shard
from outpace.record.checkpoints.shards import SUFFIX, mean_parameters
from outpace.record.totals import Totals
from outpace.sync.checkpoint.workers import common_state

_COMMON: Final = COMMON + SUFFIX


class CheckpointsOfSentParts(CheckpointsOfWorkers):
    """The checkpoints of workers whose files are fetched. Args: as for `CheckpointsOfWorkers`."""

    def __init__(self, run: SavedRun, groups: Groups) -> None:
        assert run.fetching is not None
        super().__init__(run, groups)
        self._beside = run.fetching

    def _own_file(self, worker: int) -> str:
        """Return the name of the file with the model of a worker."""
        return model_of(worker) + SUFFIX if self._is_script else kept_in(worker)

    def _files(self, present: Open, process: int) -> Collection[str]:
        assert isinstance(present, OpenOfWorkers)
        common = {_COMMON} if process == present.common else set()
        return {self._own_file(process), kept_in(process)} | common

    def _take_part(self, present: Open, process: int, message: CheckpointPart) -> None:
        if self._lacks_mean(present):
            raise ProtocolError("it has saved its part before")
        super()._take_part(present, process, message)

    def _saved_of(self, number: int, message: CheckpointPart) -> tuple[SavedWorker, int]:
        saved, clock = super()._saved_of(number, message)
        assert self._open is not None
        saved.parts = self._open.fetched.get(number, [])
        names = {part.file for part in saved.parts}
        if self._is_script and kept_in(number) not in names:
            raise ProtocolError(f"it did not send the file {kept_in(number)}")
        for record, name in ((saved.common, _COMMON), (saved.own, self._own_file(number))):
            if record is not None and (record.file != name or name not in names):
                raise ProtocolError(f"it did not send the file {record.file}")
        return saved, clock

    # -- the mean of models that differ --------------------------------------------------

    def _write_mean(self, present: Open, files: Sequence[str]) -> None:
        sizes = [saved.own.phantom_bytes for _, saved in present.parts.values() if saved.own]
        phantom = next((Phantom(size) for size in sizes if size is not None), None)
        write = partial(_mean_of, present.folder, files, phantom)
        self._beside(write, partial(self._has_mean, present))

    def _has_mean(self, present: Open, mean: SavedMean | Exception) -> None:
        if self._open is not present or not self._lacks_mean(present):
            return
        if isinstance(mean, Exception):
            self._give_up(present, [], str(mean))
            self._await_version()
            return
        self._take_mean(present, CheckpointPart(present.number, 0, Totals(), b""), mean)


def _mean_of(folder: Path, files: Sequence[str], phantom: Value | None) -> SavedMean | Exception:
    """Write the mean of the models in these files; return it, or why it cannot be written.

    phantom: of models that have no values, the mean.
    """
    try:
        mean = mean_parameters(folder, files) if phantom is None else phantom
        state = common_state({0: 0}, 0, 0, mean, {})
        return SavedMean(*write_shard(folder, state, name=COMMON))
    except (OSError, OutpaceError, RuntimeError, KeyError) as error:  # a worker sent other models
        return error
