"""Counts the messages of the processes of a run, and waits for missing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from outpace.errors import RunError
from outpace.kernel import Kernel, Mailbox, TimedOut
from outpace.support.units import Time, seconds
from outpace.sync.messages import WireMessage


class Announcements:
    """Messages that say how far a process has come."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._mailbox = Mailbox[WireMessage](kernel, "announcements of the processes")
        self._heard: Counter[tuple[str, type[WireMessage]]] = Counter()
        # What is waited for, and the processes that have not done it.
        self.awaited: tuple[str, list[str]] = "", []

    def add(self, name: str, message: WireMessage) -> None:
        self._heard[name, type(message)] += 1
        self._mailbox.put(message)

    async def all(
        self, names: list[str], kind: type[WireMessage], what: str, limit_s: float, times: int = 1
    ) -> None:
        """Wait until each of these processes has sent `times` messages of this kind.

        what: what such a message announces, for the error.
        """
        since = self._kernel.now
        while missing := [name for name in names if self._heard[name, kind] < times]:
            await self.next(limit_s, since, what, missing)

    async def next(
        self, limit_s: float | None, since: Time | None, what: str, missing: Sequence[str]
    ) -> None:
        """Wait for the next message, up to `limit_s` after `since`; without limit if one is None.

        Raises:
            RunError: the time is over; names the `missing` processes and `what` they did not do.
        """
        self.awaited = what, list(missing)
        if limit_s is None or since is None:
            await self._mailbox.get()
            return
        try:
            with self._kernel.timeout(max(0.0, limit_s - seconds(self._kernel.now - since))):
                await self._mailbox.get()
        except TimedOut:
            raise RunError(f"{', '.join(missing)} did not {what} within {limit_s:.0f} s") from None
