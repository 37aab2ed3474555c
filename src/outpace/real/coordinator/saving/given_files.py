"""Gives processes that do not see the folder of the run the files with which they are resumed.

A process asks for one piece after another (`real.copying`). A thread reads each piece when it is
asked for, so no file is in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from outpace.config.experiment import Experiment
from outpace.errors import ProtocolError
from outpace.real.background import RunInBackground
from outpace.real.copying import Offer
from outpace.real.net.checkpoint_messages import (
    CheckpointFiles,
    FilePiece,
)
from outpace.real.net.transport import Listener
from outpace.record.checkpoints import Checkpoint
from outpace.record.checkpoints.committed import INDEX, Damaged
from outpace.record.checkpoints.tensors import checked
from outpace.support.regular_files import inside
from outpace.sync.messages import WireMessage, server_name, worker_name


class GivenFiles:
    """The files of checkpoints that processes fetch.

    Args:
        experiment: of the run that is resumed.
        beside: reads the files.
        failed: called with a process, and why the files that it needs cannot be read.
    """

    def __init__(
        self,
        experiment: Experiment,
        listener: Listener,
        beside: RunInBackground,
        failed: Callable[[str, str], None],
    ) -> None:
        self._experiment, self._listener, self._beside = experiment, listener, beside
        self._failed = failed
        self._servers = {server_name(n): n for n in range(experiment.servers_in_run)}
        self._workers = {worker_name(n): n for n in range(experiment.workers)}
        # By process: the folder of a checkpoint, and its files that the process fetches.
        self._offers: dict[str, tuple[Path, Offer]] = {}
        self._sent: Counter[str] = Counter()  # pieces, by process

    def offer(self, name: str, folder: Path) -> None:
        """Tell a process which files of the checkpoint in a folder it needs; it fetches them."""
        try:
            checkpoint = Checkpoint(folder)
            known = {part.file: part for part in checkpoint.index.parts}
            known[INDEX] = checked(folder / INDEX)
            files = [known[file] for file in self._names(name, checkpoint)]
        except (OSError, Damaged) as error:
            self._failed(name, f"cannot read its checkpoint: {error}")
            return
        number = checkpoint.index.number
        self._offers[name] = folder, Offer(number, files)
        self._listener.send(name, CheckpointFiles(number, files))

    def _names(self, name: str, checkpoint: Checkpoint) -> list[str]:
        experiment = self._experiment
        if name in self._workers:
            return checkpoint.files_of_worker(self._workers[name], experiment.workers)
        slices = experiment.slices(checkpoint.index.layers)
        return checkpoint.files_of_server(self._servers[name], slices, experiment.workers)

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about these files."""
        if not isinstance(message, FilePiece) or message.block is not None:
            return False
        try:
            folder, offer = self._offers.get(name, (Path(), Offer(0, ())))
            size = offer.piece_bytes(message)
        except ProtocolError as error:
            self._listener.refuse(name, str(error))
            return True
        path = folder / offer.files[message.file].file
        read = partial(_read, path, message.offset, size)
        self._beside(read, partial(self._send, name, offer, message))
        return True

    def _send(
        self, name: str, offer: Offer, request: FilePiece, data: torch.Tensor | OSError
    ) -> None:
        if self._offers[name][1] is not offer:
            return  # another process has its name now
        if isinstance(data, OSError):
            self._failed(name, f"cannot read its checkpoint: {data}")
            return
        piece = FilePiece(request.number, request.file, request.offset, data)
        self._listener.send(name, piece)
        self._sent[name] += 1

    def sent(self, name: str) -> int:
        """Return how many pieces a process has been sent."""
        return self._sent[name]


def _read(path: Path, offset: int, size: int) -> torch.Tensor | OSError:
    """Return these bytes of a file, or why they cannot be read."""
    data = torch.empty(size, dtype=torch.uint8)
    try:
        with open(path, "rb", opener=inside) as file:
            file.seek(offset)
            count = file.readinto(data.numpy().data)
    except OSError as error:
        return error
    if count != size:
        return OSError(f"{path} has become shorter")
    return data
