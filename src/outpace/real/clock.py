"""The kernel's clock in real time: waits for the next event by polling sockets.

One thread does everything: the kernel asks the clock for the time of the next event,
the clock waits on all sockets at once, and what comes in is handed to its handler, which
puts it in a mailbox. ZeroMQ's own threads move bytes meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias

import zmq

from outpace.units import Time

Readable: TypeAlias = "zmq.Socket[bytes] | int"

_MILLISECOND: Final = 1_000_000
_MOST_MS: Final = 1000  # look up from a wait now and then, for signals


class RealClock:
    """Nanoseconds since `origin` (of time.monotonic_ns), moving by themselves.

    On one machine all processes share that clock; a process elsewhere is given an origin
    of its own. The handler of a socket need not take in all that is there: what it leaves
    is there at the next look, after whoever it woke has run.
    """

    def __init__(self, origin: int | None = None) -> None:
        self.origin = time.monotonic_ns() if origin is None else origin
        self._poller = zmq.Poller()
        self._handlers: dict[Readable, Callable[[], None]] = {}

    @property
    def now(self) -> Time:
        return time.monotonic_ns() - self.origin

    def watch(self, socket: Readable, handler: Callable[[], None]) -> None:
        """Call the handler whenever the socket, or file descriptor, can be read."""
        self._poller.register(socket, zmq.POLLIN)
        self._handlers[socket] = handler

    def forget(self, socket: Readable) -> None:
        """Stop watching it."""
        self._poller.unregister(socket)
        del self._handlers[socket]

    def __call__(self, next_event: Time | None) -> Time | None:
        """Take in what is there; with nothing there, wait for it until the next event."""
        if not self._handlers and next_event is None:
            return None
        wait = None if next_event is None else next_event - self.now
        if wait is None:
            timeout_ms = _MOST_MS
        elif wait <= 0:
            timeout_ms = 0
        else:  # rounded down, the rest is slept: a poll counts in whole milliseconds
            timeout_ms = min(wait // _MILLISECOND, _MOST_MS)
        ready = self._poller.poll(timeout_ms)
        for socket, _ in ready:
            handler = self._handlers.get(socket)
            if handler is not None:  # another one may have closed it
                handler()
        if not ready and timeout_ms == 0 and wait is not None and wait > 0:
            time.sleep(wait / 1e9)
        return self.now
