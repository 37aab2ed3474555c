"""The workers that a server hears, when another process replaces that of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpace.kernel import Kernel
from outpace.real.net.inbox import Inbox
from outpace.real.net.membership_messages import ReplaceWorker, WorkerReplaced
from outpace.real.net.transport import Caller, Listener
from outpace.real.node.serving.part import ServerPart
from outpace.support.units import nanoseconds
from outpace.sync.messages import WireMessage, worker_name

_LAST_MESSAGES_S: Final = 0.5  # to take in what a lost worker has sent
_LOOK_S: Final = 0.001


class HeardWorkers:
    """Follows the coordinator's orders about the workers of the run.

    Args:
        forget: drops what the process of a worker, given by name, still waits for.
    """

    def __init__(
        self,
        kernel: Kernel,
        part: ServerPart,
        listener: Listener,
        inbox: Inbox,
        coordinator: Caller,
        forget: Callable[[str], None],
    ) -> None:
        self._kernel, self._part, self._forget = kernel, part, forget
        self._listener, self._inbox, self._coordinator = listener, inbox, coordinator

    def order(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if not isinstance(message, ReplaceWorker):
            return False
        self._kernel.spawn(self._replace(message), "a replacement", daemon=True)
        return True

    async def _replace(self, order: ReplaceWorker) -> None:
        """Hear only a new process of a worker, and tell how far the old one has come."""
        name, kernel = worker_name(order.worker), self._kernel
        limit = kernel.now + nanoseconds(_LAST_MESSAGES_S)
        await kernel.sleep(_LOOK_S)
        while self._listener.unread and kernel.now < limit:  # perhaps of the old process
            await kernel.sleep(_LOOK_S)
        self._listener.replace(name, order.generation, returns=order.stays)
        self._forget(name)
        await self._inbox.settled()
        progress = self._progress(order.worker)
        await self._inbox.replace(order.worker, stays=order.stays)
        if order.stays:  # when a worker leaves, iterations may finish for which it was waited for
            progress = self._progress(order.worker)
        self._coordinator.send(WorkerReplaced(order.worker, order.generation, *progress))

    def _progress(self, worker: int) -> tuple[int, int]:
        """Return the last iteration of a worker, and how many iterations are finished."""
        shard = self._part.shard
        return shard.watermark(worker), shard.clock
