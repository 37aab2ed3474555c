"""The messages for the program of a worker, as its context hands them out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from outpace.kernel import Kernel, Mailbox
from outpace.sync.messages import Message


class Inbox:
    """The messages that the program has not read. See `WorkerContext` for the methods.

    Args:
        name: of the worker.

    Attributes:
        mailbox: the messages.
    """

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self.mailbox = Mailbox[Message](kernel, f"the mailbox of {name}")
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = self.mailbox.get
        self.take_nowait = self.mailbox.get_nowait  # a message that the process has read already

    async def recv_several(self, count: int) -> Sequence[Message]:
        return [await self.recv()]  # each is processed while others arrive

    def recv_nowait(self) -> Message | None:
        if not len(self.mailbox):
            self._kernel.catch_up()  # handles messages that arrived during the computation
        return self.mailbox.get_nowait()

    async def recv_within(self, timeout_s: float) -> Message | None:
        self._kernel.catch_up()  # the timeout starts now
        return await self.mailbox.get_within(timeout_s)
