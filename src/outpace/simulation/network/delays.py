"""Random delays of messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from outpace.cluster.delays import Lateness
from outpace.kernel import Kernel
from outpace.simulation.network.links import NodePath, Transfer
from outpace.support.units import Time
from outpace.sync.messages import Reply


class Delays:
    """Holds back delayed messages from their receivers.

    A reply may overtake an earlier delayed one: workers see by the version which reply is newer.
    Pushes and pulls keep their order: a shard needs a worker's iterations in order, as TCP delivers
    them.
    """

    def __init__(
        self, kernel: Kernel, lateness: Lateness, deliver: Callable[[Transfer], None]
    ) -> None:
        self._kernel, self._lateness, self._deliver = kernel, lateness, deliver
        # delayed messages in the order of their due times
        self._held: dict[NodePath, deque[tuple[Time, Transfer]]] = {}

    def __call__(self, transfer: Transfer) -> None:
        """Deliver a message that has come through the network, now or later."""
        link = transfer.link
        late = self._lateness.of(link.sender.name, link.receiver.name, transfer.message)
        if late and isinstance(transfer.message, Reply):
            self._kernel.call_at(self._kernel.now + late, self._deliver, transfer)
            return
        held = self._held.get(link)
        if not late and held is None:
            self._deliver(transfer)
            return
        due = self._kernel.now + late
        if held is None:
            held = self._held[link] = deque()
        else:  # pushes and pulls stay in order, also behind a message with a longer delay
            due = max(due, held[-1][0])
        held.append((due, transfer))
        self._kernel.call_at(due, self._release, link)

    def _release(self, link: NodePath) -> None:
        # The first message in the list, whichever event this is, because equal times may be
        # shuffled.
        held = self._held[link]
        self._deliver(held.popleft()[1])
        if not held:
            del self._held[link]
