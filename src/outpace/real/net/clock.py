"""The kernel's clock in real time: it waits for the next event by polling sockets.

One thread does everything. The kernel asks the clock to wait until the next event. The clock waits
on all sockets at once and calls the handler of each socket that can be read; the handler puts the
messages into a mailbox. ZeroMQ's own threads transfer bytes in parallel.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final, TypeAlias

import zmq

from outpace.support.units import Time

Readable: TypeAlias = "zmq.Socket[bytes] | int"
Later: TypeAlias = deque[Callable[[], object]]  # messages from other threads

_MILLISECOND: Final = 1_000_000
_DELAYED: Final = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
]
_MOST_MS: Final = 1000  # longest wait before signals are checked


class RealClock:
    """Nanoseconds since `origin`, a value of time.monotonic_ns.

    All processes on one machine share that clock; a process on another machine has its own origin.
    A handler need not read everything that has arrived: it is called again for the rest, after the
    walkers that it woke have run.

    Attributes:
        later: functions to call before the next wait. Any thread may append to it.
        idle_ns: time when the clock found nothing to read, or stopped waiting because something
            arrived. The sockets set the other times for the message that is being handled: its
            first piece was read at first_ns, its last piece at read_ns, and the last piece arrived
            after after_ns. All are values of time.monotonic_ns().
    """

    def __init__(self, origin: int | None = None) -> None:
        self.origin = time.monotonic_ns() if origin is None else origin
        self.idle_ns = self.after_ns = self.first_ns = self.read_ns = time.monotonic_ns()
        self.later: Later = deque()
        self._poller = zmq.Poller()
        self._signals: list[Callable[[], object]] = []  # handlers of signals that have arrived
        self._handlers: dict[Readable, Callable[[], None]] = {}

    @property
    def now(self) -> Time:
        return time.monotonic_ns() - self.origin

    def watch(self, socket: Readable, handler: Callable[[], None]) -> None:
        """Call the handler whenever this socket or file descriptor can be read."""
        self._poller.register(socket, zmq.POLLIN)
        self._handlers[socket] = handler

    def forget(self, socket: Readable) -> None:
        """Stop watching this socket or file descriptor."""
        self._poller.unregister(socket)
        del self._handlers[socket]

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """In the main thread, delay `_DELAYED` signals until the clock is about to wait.

        If their handlers raised an error anywhere else, a message could be lost, or the error
        itself: ZeroMQ's binding ignores errors that are raised while it frees a message.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, _: FrameType | None) -> None:
            self._signals.append(partial(handlers[number], number, None))

        handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        for number in _DELAYED:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        try:
            yield
        finally:
            for each in handlers:
                signal.signal(each, handlers[each])
            self._run_signal_handlers()

    def _run_signal_handlers(self) -> None:
        """Run the handlers of received signals; if one raises, the others are dropped."""
        come, self._signals = self._signals, []
        for handle in come:
            handle()

    def __call__(self, next_event: Time | None) -> Time | None:
        """Call the handlers of readable sockets; if there are none, wait until the next event."""
        if self._signals:
            self._run_signal_handlers()
        while self.later:
            self.later.popleft()()
        if not self._handlers and next_event is None:
            return None
        before = time.monotonic_ns()
        wait = None if next_event is None else next_event + self.origin - before
        if wait is None:
            timeout_ms = _MOST_MS
        elif wait <= 0:
            timeout_ms = 0
        else:  # rounded down, as a poll counts in whole milliseconds; the clock sleeps for the rest
            timeout_ms = min(wait // _MILLISECOND, _MOST_MS)
        ready = self._poller.poll(0)
        if not ready:
            self.idle_ns = before
            if timeout_ms:
                ready = self._poller.poll(timeout_ms)
        after = time.monotonic_ns()
        if ready and self.idle_ns == before:
            self.idle_ns = after
        for socket, _ in ready:
            handler = self._handlers.get(socket)
            if handler is not None:  # another handler may have closed it
                handler()
        if not ready and timeout_ms == 0 and wait is not None and wait > 0:
            time.sleep(wait / 1e9)
        return time.monotonic_ns() - self.origin
