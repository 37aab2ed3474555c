"""The objects that a walker can wait for.

They are the value of a future, the end of another walker, a message and a notification. A walker
waits for one of them by yielding it to the kernel, which adds the walker to its waiters.

For speed, these classes and the kernel use each other's private attributes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from outpace.support.units import Time

if TYPE_CHECKING:
    from outpace.kernel.kernel import Kernel

T = TypeVar("T")

LATE: Final = 1 << 95  # added to the order of an event: it comes after the other events of its time
LAST: Final = 1 << 96  # added to the order of an event: it comes even after late events
# added to the order of an event: it comes between the two (orders stay below 2^94)
_TIME_IS_UP: Final = LATE + (1 << 94)


class TimedOut(TimeoutError):
    """Raised when the time of a `Kernel.timeout` block is over."""


class Awaited:
    """An object that walkers can wait for."""

    __slots__ = ("_waiters", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiters: deque[Walker] = deque()  # in the order in which they began to wait

    def __str__(self) -> str:
        return self.name


class Notification(Awaited):
    """A call of `Walker.notify` that one walker waits for."""

    __slots__ = ()


class Future(Awaited, Generic[T]):
    """A value that is set later. Any number of walkers may await it."""

    __slots__ = ("_kernel", "_value", "done")

    def __init__(self, kernel: Kernel, name: str = "a future") -> None:
        super().__init__(name)
        self._kernel, self.done = kernel, False
        self._value: Any = None

    def set(self, value: T) -> None:
        """Set the value and wake all walkers that wait. Raises RuntimeError if it has a value."""
        if self.done:
            raise RuntimeError(f"{self.name} already has a value")
        self.done, self._value = True, value
        while self._waiters:
            self._kernel._make_ready(self._waiters.popleft())

    def __await__(self) -> Generator[Future[T], Any, T]:
        if not self.done:
            yield self
        value: T = self._value
        return value


class Walker(Future[None]):
    """A coroutine driven by the kernel, made by `Kernel.spawn`. Await it to wait for its end."""

    __slots__ = ("_blocked_on", "_coroutine", "_given", "_step", "daemon", "waiting_since")

    def __init__(
        self, kernel: Kernel, body: Coroutine[Any, Any, Any], name: str, daemon: bool
    ) -> None:
        super().__init__(kernel, name)
        self.daemon, self._coroutine = daemon, body
        self.waiting_since: Time = kernel.now
        self._step: Callable[[Any], Any] = body.send  # resumes the coroutine with _given
        self._given: Any = None  # the value of its last notification
        self._blocked_on: Any = None  # an Event or an Awaited; None: the walker is ready or runs

    def notify(self, value: Any = None) -> bool:
        """End the walker's `Kernel.wait()`, which returns `value`. False if it is not in one."""
        if not isinstance(self._blocked_on, Notification):
            return False
        self._given = value
        self._kernel._make_ready(self)
        return True

    def __str__(self) -> str:
        return f"the end of {self.name}"


class Mailbox(Awaited, Generic[T]):
    """A first-in, first-out queue of messages; each message goes to one receiver."""

    __slots__ = ("_kernel", "_messages", "_missing", "_ready")

    def __init__(self, kernel: Kernel, name: str = "a mailbox") -> None:
        super().__init__(name)
        self._kernel, self._ready = kernel, kernel._ready
        self._messages: deque[T] = deque()
        self._missing = 1  # number of further messages that wake the waiting receiver

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: T) -> None:
        """Add a message; wake the receiver that has waited longest if it has all its messages."""
        self._messages.append(message)
        if self._waiters:
            if self._missing > 1:
                self._missing -= 1
                self._waiters[0].waiting_since = self._kernel.now
            else:
                walker = self._waiters.popleft()  # Kernel._make_ready inlined: half the cost
                walker._blocked_on = None
                self._ready.append(walker)

    @coroutine
    def get(self) -> Generator[Mailbox[T], Any, T]:
        """Return the next message; block until there is one."""
        while not self._messages:
            self._missing = 1
            yield self
        return self._messages.popleft()

    @coroutine
    def get_several(self, count: int) -> Generator[Mailbox[T], Any, list[T]]:
        """Return the next `count` messages; block until there are that many.

        For a mailbox with one receiver, which is resumed once instead of once for each message.
        """
        messages = self._messages
        while len(messages) < count:
            self._missing = count - len(messages)
            yield self
        return [messages.popleft() for _ in range(count)]

    def clear(self) -> None:
        """Drop the messages that have not been received."""
        self._messages.clear()

    def drop(self, is_unwanted: Callable[[T], bool]) -> None:
        """Drop the messages in the queue for which `is_unwanted` returns True."""
        kept = [message for message in self._messages if not is_unwanted(message)]
        self._messages.clear()
        self._messages.extend(kept)

    def get_nowait(self) -> T | None:
        """Return the next message, or None if there is none."""
        return self._messages.popleft() if self._messages else None

    async def get_within(self, timeout_s: float) -> T | None:
        """Return the next message, or None if none arrives within `timeout_s` seconds.

        A message that arrives at the very end counts, because the time-out comes after everything
        else that is due then. So a time-out of 0 includes all messages of the present time. Raises
        the errors of `Kernel.timeout`.
        """
        if self._messages:
            return self._messages.popleft()
        try:
            with self._kernel.timeout(timeout_s, place=_TIME_IS_UP):
                return await self.get()
        except TimedOut:
            return None

    def __str__(self) -> str:
        return f"a message in {self.name}"
