"""The processes of a simulated run, which can be killed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, TypeVar

from outpace.kernel import Kernel, Walker
from outpace.simulation.life import Process
from outpace.support.units import Time
from outpace.sync.messages import Message

P = ParamSpec("P")
T = TypeVar("T")


class Obeyed(NamedTuple):
    """The coordinator's order to a server, which waits behind the messages in its mailbox.

    obeyed: called when the server's program has processed the message.
    """

    message: Message
    obeyed: Callable[[], None]


class MortalProcess(Process):
    """A process that can be killed. The process that replaces it is another object."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        super().__init__(kernel, name)
        self.walker: Walker | None = None
        self.alive = True
        self.has_finished = False  # its program has ended
        self.computing: tuple[int, Time] | None = None  # its last iteration, and when it began it
        # called when its program has processed the present order
        self._obeyed: Callable[[], None] | None = None

    def end(self) -> None:
        """Kill the process."""
        self.alive = False
        if self.walker is not None:
            self._kernel.end(self.walker)

    def receiving(
        self, receive: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def received(*args: P.args, **kwargs: P.kwargs) -> T:
            obeyed, self._obeyed = self._obeyed, None
            if obeyed is not None:
                obeyed()
            message: Any = await receive(*args, **kwargs)
            if isinstance(message, Obeyed):
                message, self._obeyed = message
            found: T = message
            return found

        return received

    def begin(self, iteration: int) -> None:
        self.computing = iteration, self._kernel.now
