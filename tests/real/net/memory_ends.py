"""Two processes that share memory, without sockets between them and both in this process."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import torch

from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.memory.lane import Lane, MemoryMessage
from outpace.real.net.memory.pool import Pool
from outpace.real.net.messages import WirePush

ELEMENTS = 1024  # one page


def descriptors() -> int:
    """Return how many file descriptors this process has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


class Ends:
    """Lanes of one connection: `sender` sends blocks to `receiver`.

    Attributes:
        sent: messages of the sender. answers: messages of the receiver. notes: of both.
        delivers: False to keep messages of the sender from the receiver.
    """

    def __init__(self, *, is_read: bool, pool: Pool | None = None) -> None:
        self.clock = RealClock() if pool is None else pool.clock
        self.notes: list[str] = []
        self.sent: list[MemoryMessage] = []
        self.answers: list[MemoryMessage] = []
        self.delivers = True
        self.pool = pool or Pool(self.clock, self.notes.append, least_bytes=1)
        self.other = Pool(self.clock, self.notes.append, least_bytes=1)
        self.sender = Lane(self.pool, self._to_receiver, is_read=is_read)
        self.receiver = Lane(self.other, self._to_sender, is_read=not is_read)

    def _to_receiver(self, message: MemoryMessage) -> None:
        self.sent.append(message)
        if self.delivers:
            self.receiver.take(message)

    def _to_sender(self, message: MemoryMessage) -> None:
        self.answers.append(message)
        self.sender.take(message)

    def until(self, condition: Callable[[], object]) -> None:
        """Let the clock work until the condition holds; that takes a few turns."""
        for _ in range(1000):
            if condition():
                return
            self.clock(self.clock.now + 1_000_000)
        raise AssertionError((self.sent, self.answers, self.notes))

    def turns(self, number: int = 5) -> None:
        for _ in range(number):
            self.clock(self.clock.now + 100_000)

    def send(self, block: torch.Tensor) -> int | None:
        """Send a block; return the slot in which it lies, if any."""
        return self.sender.place(WirePush(0, 0, 0, head_of(block)), block)

    def offer(self, elements: int = ELEMENTS) -> None:
        """Send blocks until their sender offers a slot for them."""
        for _ in range(2):
            self.send(torch.zeros(elements))

    def share(self, elements: int = ELEMENTS) -> int:
        """Send blocks until the receiver has a slot of this size; return the slot."""
        block = torch.zeros(elements)
        for _ in range(4):
            number = self.send(block)
            if number is not None:
                self.receiver.tell_free(number)
                return number
            self.turns()
        raise AssertionError((self.sent, self.answers, self.notes))

    def close(self) -> None:
        for lane in (self.sender, self.receiver):
            lane.close()
        for pool in (self.pool, self.other):
            pool.close()
