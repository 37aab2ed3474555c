"""The versions of a process's parameters for which the coordinator waits."""

from __future__ import annotations

from collections.abc import Callable

from outpace.real.net.checkpoint_messages import VersionReached
from outpace.real.net.messages import TakeSnapshot
from outpace.sync.messages import WireMessage


class AwaitedVersions:
    """Answers each TakeSnapshot as soon as its version, or a later one, exists.

    Args:
        send: sends a message to the coordinator.
        progress: returns the present version, and the clock of the process.
        snapshot: sends the parameters for the request of this number.
    """

    def __init__(
        self,
        send: Callable[[WireMessage], None],
        progress: Callable[[], tuple[int, int]],
        snapshot: Callable[[int], None],
    ) -> None:
        self._send, self._progress, self._snapshot = send, progress, snapshot
        self._asked: dict[int, int] = {}  # number of the request -> the version it is for

    def ask(self, order: TakeSnapshot) -> None:
        """Handle an order of the coordinator."""
        self._asked[order.request] = order.version
        self.reached(self._progress()[0])

    def reached(self, version: int) -> None:
        """Answer the orders for which this version is sufficient."""
        if not self._asked:
            return
        for request in [each for each, awaited in self._asked.items() if awaited <= version]:
            del self._asked[request]
            if request:
                self._snapshot(request)
            else:
                self._send(VersionReached(*self._progress()))
