"""The files of a checkpoint with which a worker goes on that does not see the folder of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from outpace.blocks.block import Block, whole
from outpace.errors import RunError
from outpace.kernel import Kernel, Mailbox
from outpace.real.net.checkpoint_messages import CheckpointArrived, CheckpointFiles
from outpace.real.net.messages import Plan
from outpace.real.node.saving.files import contents
from outpace.sync.messages import WireMessage, worker_name


class ReceivedFiles:
    """What the coordinator sends one worker after the plan, under `outpace serve`.

    Args:
        send: sends a message to the coordinator.
    """

    def __init__(self, worker: int, kernel: Kernel, send: Callable[[WireMessage], None]) -> None:
        self._worker, self._send = worker, send
        self._bytes = 0  # that are announced
        what = "the files of the checkpoint"
        self._files = Mailbox[tuple[CheckpointFiles, torch.Tensor]](kernel, what)

    async def folder(self, plan: Plan, own: Path) -> Path | None:
        """Return the folder of the checkpoint to go on from, once its files are there.

        Args:
            own: the folder for files that are sent.

        Returns:
            None: the run begins.

        Raises:
            RunError: if they cannot be written.
        """
        if not plan.kept:
            return Path(plan.resume) if plan.resume else None
        message, block = await self._files.get()
        try:
            for file, content in zip(message.files, contents(message.files, block), strict=True):
                (own / Path(file.name).name).write_bytes(content.numpy().data)
        except (OSError, ValueError) as error:
            name = worker_name(self._worker)
            raise RunError(f"{name} cannot receive its checkpoint: {error}") from error
        self._send(CheckpointArrived())
        return own

    def expected(self, message: WireMessage) -> tuple[str, int] | None:
        """Return dtype and elements of the block that comes with a message; None: it has none."""
        is_awaited = isinstance(message, CheckpointFiles) and self._bytes
        return ("uint8", self._bytes) if is_awaited else None

    def take(self, message: WireMessage, block: Block | None) -> bool:
        """Take the files; False if it is another message. The plan announces them."""
        if isinstance(message, Plan) and message.kept:
            self._bytes = message.kept[self._worker]
        if not isinstance(message, CheckpointFiles):
            return False
        data = None if block is None else whole(block)
        assert isinstance(data, torch.Tensor)
        self._files.put((message, data))
        return True
