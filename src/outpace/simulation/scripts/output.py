"""Prints what the scripts of virtual workers print, beside the simulation."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Final

from outpace.support.streams import OutputClosed

_LOOK_MS: Final = 50


class OutputThread:
    """A thread that reads the output of processes. Implements `Watcher`.

    Attributes:
        closed: True once nothing reads the output of this process any more.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[], None]] = {}
        self._poll = select.poll()
        self._lock = threading.RLock()  # a handler may call `forget`
        self._is_over = threading.Event()
        self.closed = False
        self._thread = threading.Thread(target=self._read, name="output of scripts", daemon=True)
        self._thread.start()

    def watch(self, socket: int, handler: Callable[[], None]) -> None:
        with self._lock:
            self._handlers[socket] = handler
            self._poll.register(socket, select.POLLIN)

    def forget(self, socket: int) -> None:
        with self._lock:
            if self._handlers.pop(socket, None):
                self._poll.unregister(socket)

    def close(self) -> None:
        """End the thread. Files are no longer watched, but can still be forgotten."""
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._is_over.is_set():
            ready = self._poll.poll(_LOOK_MS)
            with self._lock:
                for file, _ in ready:
                    handler = self._handlers.get(file)
                    if handler is not None:
                        self._call(handler)

    def _call(self, handler: Callable[[], None]) -> None:
        try:
            handler()
        except OutputClosed:
            self.closed = True
