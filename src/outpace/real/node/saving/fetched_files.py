"""Files of a checkpoint that the coordinator has, and with which this process goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from outpace.blocks.block import Block
from outpace.errors import ProtocolError, RunError
from outpace.kernel import Kernel, Mailbox
from outpace.real.net.checkpoint_messages import CheckpointArrived, CheckpointFiles, FilePiece
from outpace.real.net.fetch import Fetch
from outpace.sync.messages import WireMessage


class FetchedFiles:
    """Fetches files from the coordinator.

    Args:
        name: of this process.
        send: sends a message to the coordinator.
    """

    def __init__(self, name: str, kernel: Kernel, send: Callable[[WireMessage], None]) -> None:
        self._name, self._send = name, send
        self._announced = Mailbox[CheckpointFiles](kernel, "the files of the checkpoint")
        self._pieces = Mailbox[torch.Tensor](kernel, "a piece of the checkpoint")
        self._fetch: Fetch | None = None

    def expected(self, message: WireMessage) -> tuple[str, int] | None:
        """Return which block may come with a message."""
        if not isinstance(message, FilePiece) or self._fetch is None:
            return None
        size = self._fetch.due(message)
        return None if size is None else ("uint8", size)

    def take(self, message: WireMessage, block: Block | None) -> bool:
        """Handle a message of the coordinator; False if it is not about these files."""
        if isinstance(message, CheckpointFiles):
            self._announced.put(message)
        elif isinstance(message, FilePiece):
            assert self._fetch is not None
            assert isinstance(block, torch.Tensor)
            self._fetch.take()
            self._pieces.put(block)
        else:
            return False
        return True

    async def into(self, folder: Path) -> None:
        """Write the files that the coordinator announces into a folder.

        Raises:
            RunError: if they cannot be written.
        """
        message = await self._announced.get()
        try:
            self._fetch = Fetch(message.number, message.files)
            self._ask()
            for file in message.files:
                with (folder / Path(file.name).name).open("xb") as opened:
                    missing = file.bytes
                    while missing:
                        piece = await self._pieces.get()
                        opened.write(piece.numpy().data)
                        missing -= piece.numel()
                        self._fetch.written(piece.numel())
                        self._ask()
        except (OSError, ProtocolError) as error:
            raise RunError(f"{self._name} cannot receive its checkpoint: {error}") from error
        self._send(CheckpointArrived())

    def _ask(self) -> None:
        assert self._fetch is not None
        for request in self._fetch.ask():
            self._send(request)
