"""The messages for the program of a worker, as its context hands them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from outpace.kernel import Kernel, Mailbox
from outpace.sync.messages import Message, Restarted, server_name


class Inbox:
    """The messages that the program has not read. See `WorkerContext` for the methods.

    Args:
        name: of the worker.
        servers_return: True if a lost server comes back while the workers go on.

    Attributes:
        mailbox: the messages.
        unread: for each server, by name, how often it has come back without the program having
            read that. The program repeats what is due when it does, so nothing may be sent to the
            server before.
    """

    def __init__(self, kernel: Kernel, name: str, *, servers_return: bool) -> None:
        self._kernel = kernel
        self.mailbox = Mailbox[Message](kernel, f"the mailbox of {name}")
        self.unread: Counter[str] = Counter()
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = (
            self._recv if servers_return else self.mailbox.get
        )

    def put_restarted(self, message: Restarted) -> None:
        """Add the message that a server has come back."""
        self.unread[server_name(message.shard)] += 1
        self.mailbox.put(message)

    async def recv_several(self, count: int) -> Sequence[Message]:
        return [await self.recv()]  # each is processed while others arrive

    def take_nowait(self) -> Message | None:
        """Return a message that the process has read already; None: there is none."""
        return self._read(self.mailbox.get_nowait())

    def recv_nowait(self) -> Message | None:
        if not len(self.mailbox):
            self._kernel.catch_up()  # handles messages that arrived during the computation
        return self._read(self.mailbox.get_nowait())

    async def recv_within(self, timeout_s: float) -> Message | None:
        self._kernel.catch_up()  # the timeout starts now
        return self._read(await self.mailbox.get_within(timeout_s))

    async def _recv(self) -> Message:
        message = await self.mailbox.get()
        self._read(message)
        return message

    def _read(self, message: Message | None) -> Message | None:
        """The program takes a message, and may send to a server that is back from then on."""
        if isinstance(message, Restarted):
            self.unread[server_name(message.shard)] -= 1
        return message
