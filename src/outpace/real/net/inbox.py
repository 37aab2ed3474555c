"""The messages of workers to the program of a listening process, within their bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from outpace.errors import ProtocolError
from outpace.kernel import Kernel, Mailbox
from outpace.real.net.transport import Listener
from outpace.sync.messages import (
    Close,
    FromWorker,
    Leave,
    Lost,
    Message,
    Pause,
    Pull,
    Push,
    Rejoin,
    SetPolicy,
    WireMessage,
    worker_name,
)
from outpace.sync.programs.partial_pull import Unanswered

_LOOK_AGAIN_S: Final = 0.001
_OF_SHARD: Final = Push | Pull  # these are most of the messages, and so are checked first
_ALONE: Final = Pull | Leave | Pause | Rejoin  # messages for a shard besides pushes
_OF_COORDINATOR: Final = SetPolicy | Close | Lost


def from_worker(received: WireMessage) -> Sequence[FromWorker]:
    """Return the messages for a shard in a wire message, in order; empty if it has none."""
    if not isinstance(received, Push):
        return (received,) if isinstance(received, _ALONE) else ()
    if received.coin is None:
        return (received,)
    return received, Pull(received.worker, received.iteration, received.coin)


class Turns:
    """Bounds how many pushes and unanswered pulls of each worker a server holds.

    The programs of workers keep to these bounds. A worker that does not is broken or hostile, and
    must not fill the memory of a server.

    Args:
        most: largest number of unanswered pulls of a worker.
        pushes: largest number of pushes of a worker between two pulls.
    """

    def __init__(self, most: int, pushes: int = 1) -> None:
        self._most, self._pushes = most, pushes
        # number of pushes since the worker's last pull
        self._pushed: defaultdict[int, int] = defaultdict(int)
        self._owed: defaultdict[int, Unanswered] = defaultdict(Unanswered)
        self._begun: set[int] = set()  # workers that have sent a message

    def take(self, message: FromWorker) -> bool:
        """Count a message; False if it exceeds a bound."""
        worker = message.worker
        is_first = worker not in self._begun
        self._begun.add(worker)
        if isinstance(message, _OF_SHARD):
            owed = self._owed[worker]
            if len(owed) >= self._most:
                return False
            if isinstance(message, Push):
                self._pushed[worker] += 1
                return self._pushed[worker] <= self._pushes
            self._pushed[worker] = 0
            owed.asked(message.iteration)
        elif isinstance(message, Rejoin):  # later it would remove the bounds
            return is_first
        return True

    def objection(self, message: FromWorker) -> str:
        """Return why `take` has not accepted the message."""
        if isinstance(message, Rejoin):
            return "it rejoined in the middle of its work"
        return (
            "it sent more requests without waiting for a reply than its program may "
            f"(limit {self._most} unanswered)"
        )

    def forget(self, worker: int) -> None:
        """Count again from 0: a new process has this worker's name, and may send `Rejoin`."""
        self._begun.discard(worker)
        self._pushed.pop(worker, None)
        self._owed.pop(worker, None)

    def answered(self, worker: int, iteration: int) -> None:
        """Note that the worker's pulls up to this iteration are answered."""
        self._owed[worker].answered(iteration)


class Inbox:
    """The messages for a program that have arrived at a listener.

    Messages of a refused worker are dropped.
    """

    def __init__(self, kernel: Kernel, listener: Listener, name: str, turns: Turns | None) -> None:
        self._kernel, self._listener, self._turns = kernel, listener, turns
        self._mailbox = Mailbox[Message](kernel, f"the mailbox of {name}")
        self.put, self.recv = self._mailbox.put, self._mailbox.get
        listener.when_refused.append(self._drop)

    def take(self, peer: str, message: FromWorker) -> bool:
        """Store a message for the program; refuse a worker that must not send it now."""
        if peer != worker_name(message.worker):
            self._listener.refuse(peer, f"it speaks for worker {message.worker}")
            return False
        if self._turns is not None and not self._turns.take(message):
            self._listener.refuse(peer, self._turns.objection(message))
            return False
        self.put(message)
        return True

    async def replace(self, worker: int, *, stays: bool) -> None:
        """Let the program forget a worker's process, after all messages of that process.

        stays: see `sync.messages.Lost`. The listener already accepts only the new process.
        """
        if self._turns is not None:
            self._turns.forget(worker)
        self.put(Lost(worker, stays))
        await self.settled()

    async def settled(self) -> None:
        """Wait until the program has processed all messages that have arrived."""
        await self._kernel.sleep(0)
        while len(self._mailbox):  # the program is working, or waits for something else
            await self._kernel.sleep(_LOOK_AGAIN_S)

    async def recv_within(self, timeout_s: float) -> Message | None:
        """See `Context`."""
        self._kernel.catch_up()  # the timeout starts now
        return await self._mailbox.get_within(timeout_s)

    def refuse(self, message: Message, error: ProtocolError) -> None:
        """Ignore the worker that sent an illegal message; raise the error if no worker did."""
        if isinstance(message, _OF_COORDINATOR):
            raise error
        assert isinstance(message, FromWorker)
        self._listener.refuse(worker_name(message.worker), str(error))

    def _drop(self, name: str) -> None:
        """Drop the messages of a peer that is refused now."""
        self._mailbox.drop(lambda m: isinstance(m, FromWorker) and worker_name(m.worker) == name)
