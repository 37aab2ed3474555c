"""Checkpoints of workers that do not see the folder of the run, because they are started elsewhere.

The workers send their files, which are written here, and get those that they go on with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import torch

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint, kept_in, model_of
from outpace.errors import OutpaceError, ProtocolError, RunError
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.saving.of_workers import CheckpointsOfWorkers, Groups, OpenOfWorkers
from outpace.real.coordinator.saving.open import Open, SavedRun
from outpace.real.coordinator.saving.writer import written_to
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import (
    MOST_COPIES,
    MOST_KEPT,
    CheckpointFiles,
    CheckpointPart,
    SentFile,
)
from outpace.real.net.messages import Plan
from outpace.real.net.transport import Listener
from outpace.real.node.saving.files import contents
from outpace.real.node.saving.of_worker import COMMON, SavedMean, SavedWorker
from outpace.real.node.saving.thread import Beside, do_now
from outpace.record.checkpoints import Part, write_shard
from outpace.record.checkpoints.index import INDEX
from outpace.record.checkpoints.shards import mean_parameters
from outpace.record.totals import Totals
from outpace.sync.checkpoint.workers import common_state
from outpace.sync.messages import WireMessage, worker_name

_COMMON: Final = f"{COMMON}.safetensors"
_SHARED: Final = INDEX, _COMMON  # the files that every worker needs


def model_file(worker: int) -> str:
    """Return the name of the file with the model of a worker."""
    return f"{model_of(worker)}.safetensors"


class CheckpointsOfSentParts(CheckpointsOfWorkers):
    """The checkpoints of workers that send their files. Args: as for `CheckpointsOfWorkers`.

    beside: writes the files.
    """

    def __init__(self, run: SavedRun, groups: Groups, beside: Beside = do_now) -> None:
        super().__init__(run, groups)
        self._beside = beside
        self._written: dict[int, list[Part]] = {}  # by worker; of the open checkpoint
        self._coming: set[int] = set()  # workers whose files are being written

    def expected(self, name: str, message: WireMessage) -> tuple[str, int] | None:
        if not isinstance(message, CheckpointPart) or message.block is None or self._plan is None:
            return None
        most = MOST_KEPT + MOST_COPIES * 8 * sum(self._plan.layers)
        size = message.block.elements
        return ("uint8", size) if name in self._names and size <= most else None

    def _named(self, folder: Path) -> str:
        return ""

    def _new(self, number: int, folder: Path) -> Open:
        self._written, self._coming = {}, set()
        return super()._new(number, folder)

    # -- files that workers send -------------------------------------------------------

    def take(self, name: str, message: WireMessage, block: Block | None = None) -> bool:
        worker, present = self._names.get(name), self._open
        if not isinstance(message, CheckpointPart) or worker is None:
            return super().take(name, message, block)
        if present is None or message.number != present.number:
            return True  # it was given up
        try:
            self._write_files(present, worker, message, block)
        except (ProtocolError, ValueError) as error:
            self._listener.refuse(name, str(error))
        return True

    def _write_files(
        self, present: Open, worker: int, message: CheckpointPart, block: Block | None
    ) -> None:
        """Write the files of a worker, and go on when they are on the disk."""
        allowed = {model_file(worker), kept_in(worker)}
        assert isinstance(present, OpenOfWorkers)
        if worker == present.common:
            allowed.add(_COMMON)
        names = {file.name for file in message.files}
        if not names <= allowed or len(names) < len(message.files) or kept_in(worker) not in names:
            raise ProtocolError(f"it sent the files {sorted(names)} for a checkpoint")
        if worker in self._coming:
            raise ProtocolError("it has saved its part before")
        if not isinstance(block, torch.Tensor):
            raise ProtocolError("it announced files for a checkpoint, and sent none")
        data = contents(message.files, block)
        self._coming.add(worker)

        def write() -> list[Part] | OSError:
            parts = []
            for file, content in zip(message.files, data, strict=True):
                part = written_to(present.folder / file.name, content)
                if isinstance(part, OSError):
                    return part
                parts.append(part)
            return parts

        self._beside(write, partial(self._has_written, present, worker, message))

    def _has_written(
        self, present: Open, worker: int, message: CheckpointPart, parts: list[Part] | OSError
    ) -> None:
        if self._open is not present:
            return  # it was given up
        if isinstance(parts, OSError):
            self._give_up(present, self._planner.abandon(), str(parts))
            self._await_version()
            return
        self._written[worker] = parts
        super().take(worker_name(worker), message)

    def _saved_of(self, number: int, message: CheckpointPart) -> tuple[SavedWorker, int]:
        saved, clock = super()._saved_of(number, message)
        saved.parts = self._written[number]
        names = {part.file for part in saved.parts}
        for record, name in ((saved.common, _COMMON), (saved.own, model_file(number))):
            if record is not None and (record.file != name or name not in names):
                raise ProtocolError(f"it did not send the file {record.file}")
        return saved, clock

    # -- the mean of models that differ --------------------------------------------------

    def _write_mean(self, present: Open, files: Sequence[str]) -> None:
        self._beside(partial(_mean_of, present.folder, files), partial(self._has_mean, present))

    def _has_mean(self, present: Open, mean: SavedMean | Exception) -> None:
        if self._open is not present or not self._lacks_mean(present):
            return
        if isinstance(mean, Exception):
            self._give_up(present, [], str(mean))
            self._await_version()
            return
        self._take_mean(present, CheckpointPart(present.number, 0, Totals(), b""), mean)


def _mean_of(folder: Path, files: Sequence[str]) -> SavedMean | Exception:
    """Write the mean of the models in these files; return it, or why it cannot be written."""
    try:
        state = common_state({0: 0}, 0, 0, mean_parameters(folder, files), {})
        return SavedMean(*write_shard(folder, state, name=COMMON))
    except (OSError, OutpaceError, RuntimeError, KeyError) as error:  # a worker sent other models
        return error


class SentCheckpoint(KeptScripts):
    """Sends workers that begin again what they go on with, to one after the other.

    So only the files of one worker are in memory, each of which has a copy of the model. Raises as
    `KeptScripts`.
    """

    def __init__(
        self, experiment: Experiment, listener: Listener, resume: ResumePoint | None
    ) -> None:
        super().__init__(experiment, listener, resume, lambda: None)
        self._point = resume

    def all(self) -> list[torch.Tensor]:
        return []

    def announced(self, plan: Plan, states: Sequence[torch.Tensor]) -> Plan:
        if self._point is None:
            return msgspec.structs.replace(plan, resume="")
        sizes = [sum(file.bytes for file in self._files_of(n)) for n in range(self._workers)]
        return msgspec.structs.replace(super().announced(plan, states), kept=sizes, resume="")

    def send_one_by_one(self) -> Iterator[str]:
        for worker in range(self._workers if self._point is not None else 0):
            files = self._files_of(worker)
            data = self._contents(files)
            name = worker_name(worker)
            self._listener.send(name, CheckpointFiles(files, head_of(data)), data)
            del data  # the listener has it until it is sent
            yield name

    def _files_of(self, worker: int) -> list[SentFile]:
        """Return the files that a worker needs. Raises RunError."""
        assert self._point is not None
        source = worker if self._redivided is None else self._redivided.source(worker)
        own = sorted(self._point.checkpoint.own_files(worker, self._workers))
        own.append(kept_in(source))
        try:
            sizes = [(name, (self._point.path / name).stat().st_size) for name in (*_SHARED, *own)]
        except OSError as error:
            raise RunError(f"cannot read the checkpoint: {error}") from error
        return [SentFile(name, size) for name, size in sizes]

    def _contents(self, files: Sequence[SentFile]) -> torch.Tensor:
        """Return the bytes of these files, one after the other. Raises RunError."""
        assert self._point is not None
        data, end = torch.empty(sum(file.bytes for file in files), dtype=torch.uint8), 0
        for file in files:
            begin, end = end, end + file.bytes
            path = self._point.path / file.name
            try:
                with path.open("rb") as opened:
                    read = opened.readinto(data.numpy()[begin:end].data)
            except OSError as error:
                raise RunError(f"cannot read the checkpoint: {error}") from error
            if read != file.bytes:
                raise RunError(f"cannot read the checkpoint: {path} has another size than before")
        return data
