"""The snapshots of a server's parameters that the coordinator asks for."""

from __future__ import annotations

from outpace.real.net.messages import TakeSnapshot
from outpace.real.net.transport import Caller
from outpace.real.node.serving.part import ServerPart
from outpace.record.recorder import Recorder


class Snapshots:
    """Sends a snapshot as soon as the shard has the version that is asked for.

    Attributes:
        due: the request for each version that the shard does not have yet.
    """

    def __init__(self, part: ServerPart, recorder: Recorder, coordinator: Caller) -> None:
        self.due: dict[int, int] = {}
        self._part, self._recorder, self._coordinator = part, recorder, coordinator

    def take(self, order: TakeSnapshot) -> None:
        """Follow an order of the coordinator, now or later."""
        if self._part.shard.version >= order.version:
            self._send(order.request)
        else:
            self.due[order.version] = order.request

    def reached(self, version: int) -> None:
        """The shard has this version, which is due."""
        self._send(self.due.pop(version))

    def _send(self, request: int) -> None:
        applied = self._recorder.totals.applied
        self._coordinator.send(*self._part.snapshot(request, applied))
