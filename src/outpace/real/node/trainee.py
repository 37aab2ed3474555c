"""What all workers have in common, with servers and without: something to train, and time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import torch

from outpace.blocks.block import Block, whole
from outpace.kernel import Mailbox
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import ModelBuffers, WireMessage
from outpace.real.net.wire import Expect
from outpace.real.node.member import CoordinatorLink, Member
from outpace.support.units import Time, seconds

_LOOK_EVERY_NS: Final = 1_000_000


class Trainee(Member, ABC):
    """Worker number `worker`; subclasses say what it trains."""

    def __init__(self, link: CoordinatorLink, worker: int, expect: Expect) -> None:
        super().__init__(link, expect)
        self.worker = worker
        self._extras = Mailbox[torch.Tensor](self.kernel, "worker-0's buffers")

    @property
    @abstractmethod
    def layout(self) -> str:
        """The parameters' names, shapes and dtypes: equal in all workers."""

    @property
    @abstractmethod
    def layers(self) -> list[int]:
        """The number of elements of each of its trainable parameters."""

    @property
    def extras(self) -> torch.Tensor:
        """What beside the parameters shall be equal at the start; shape (bytes,), uint8."""
        return torch.empty(0, dtype=torch.uint8)

    def take_extras(self, data: torch.Tensor) -> None:
        """Take worker 0's."""

    @abstractmethod
    def must_stop(self, iteration: int) -> bool: ...

    async def agree_on_extras(self) -> None:
        """From now on all have worker 0's."""
        extras = self.extras
        if extras.numel() and self.worker == 0:
            self.send_extras(extras)
        elif extras.numel():
            self.take_extras(await self._extras.get())

    def send_extras(self, extras: torch.Tensor) -> None:
        """To the coordinator."""
        self.coordinator.send(ModelBuffers(head_of(extras)), extras)

    def expected_extras(self, message: WireMessage) -> tuple[str, int] | None:
        """Of what dtype and length they must be, if this message brings them."""
        return ("uint8", self.extras.numel()) if isinstance(message, ModelBuffers) else None

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, ModelBuffers):
            assert block is not None
            data = whole(block)
            assert isinstance(data, torch.Tensor)
            self._extras.put(data)
        else:
            super()._order(peer, message, block)

    @property
    def now(self) -> Time:
        return self.clock.now

    async def stretch(self, started: Time, duration_s: float) -> None:
        """Sleep until a step that began then has taken so long."""
        self.kernel.catch_up()
        rest_s = duration_s - seconds(self.now - started)
        if rest_s > 0:
            await self.kernel.sleep(rest_s)

    def now_and_then(self, look: Callable[[], bool]) -> Callable[[], bool]:
        """The same, to be asked often: it takes in what came, and looks, once in a while."""
        looked_ns = 0

        def has_come() -> bool:
            nonlocal looked_ns
            now = time.monotonic_ns()
            if now - looked_ns < _LOOK_EVERY_NS:
                return False
            looked_ns = now
            self.kernel.catch_up()
            return look()

        return has_come
