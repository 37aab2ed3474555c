"""The processes of a simulated run, which can end, and stand still while they write."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, TypeVar

from outpace.kernel import Kernel, Walker
from outpace.simulation.life import Process, Send
from outpace.support.units import Time
from outpace.sync.messages import Message

P = ParamSpec("P")
T = TypeVar("T")


class Obeyed(NamedTuple):
    """The coordinator's order to a server, which waits behind the messages in its mailbox.

    obeyed: called when its program has processed the message.
    """

    message: Message
    obeyed: Callable[[], None]


class MortalProcess(Process):
    """One process. Another one that takes its place has an object of its own.

    A computation takes the run time that the law gives, and as long as the process stands still.
    """

    def __init__(self, kernel: Kernel, name: str) -> None:
        super().__init__(kernel, name)
        self.walker: Walker | None = None
        self.alive = True
        self.has_finished = False  # its program has come to its end
        self.until: Time = 0  # it stands still until then
        self.computing: tuple[int, Time] | None = None  # its last iteration, and when it began it
        self._obeyed: Callable[[], None] | None = None  # of the order that its program processes

    def end(self) -> None:
        """Kill it."""
        self.alive = False
        if self.walker is not None:
            self._kernel.end(self.walker)

    def stand_still(self, duration: Time) -> None:
        """Stop it for so long (ns), to write a part of a checkpoint."""
        begin, end = max(self._kernel.now, self.until), self._kernel.now + duration
        if end > begin:
            self.stood += end - begin
            self.until = end

    def receiving(
        self, receive: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def received(*args: P.args, **kwargs: P.kwargs) -> T:
            obeyed, self._obeyed = self._obeyed, None
            if obeyed is not None:
                obeyed()
            await self.awake()
            message: Any = await receive(*args, **kwargs)
            await self.awake()
            if isinstance(message, Obeyed):
                message, self._obeyed = message
            found: T = message
            return found

        return received

    def sending(self, send: Send) -> Send:
        def sent(to: str, *messages: Message) -> None:
            if self.until <= self._kernel.now:
                send(to, *messages)
            else:
                self._kernel.call_at(self.until, send_late, (to, messages))

        def send_late(what: tuple[str, tuple[Message, ...]]) -> None:
            to, messages = what
            if self.alive:
                sent(to, *messages)

        return sent

    async def begin(self, iteration: int) -> None:
        await self.awake()
        self.computing = iteration, self._kernel.now

    async def awake(self) -> None:
        while self._kernel.now < self.until:
            await self._kernel.sleep_ns(self.until - self._kernel.now)

    async def spend(self, duration: Time) -> None:
        kernel, started, stood = self._kernel, self._kernel.now, self.stood
        while (left := started + duration + self.stood - stood - kernel.now) > 0:
            await kernel.sleep_ns(left)
