"""Runs actions of other threads in the thread of a clock."""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable

from outpace.real.net.clock import RealClock


class Waker:
    """Runs actions of other threads in the clock's thread. Other threads may only use `call`."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        self._is_open, self._closing = True, threading.Lock()
        clock.watch(self._read_end, self.run_next)

    def move_to(self, clock: RealClock) -> None:
        """Run the actions in the thread of another clock from now on."""
        self._clock.forget(self._read_end)
        self._clock = clock
        clock.watch(self._read_end, self.run_next)

    def call(self, action: Callable[[], None]) -> None:
        """Run an action in the clock's thread, after the earlier ones; no effect after `close`."""
        with self._closing:  # otherwise `close` could close the pipe before the byte is written
            if self._is_open:
                # The action first: `run_next` takes an action as soon as it has read a byte.
                self._actions.put(action)
                os.write(self._write_end, b".")

    def run_next(self) -> None:
        """Wait for the next action and run it."""
        os.read(self._read_end, 1)
        self._actions.get()()

    def run_within(self, limit_s: float) -> None:
        """Wait for the next action for at most this time, and run it."""
        if select.select([self._read_end], [], [], limit_s)[0]:
            self.run_next()

    def stop(self) -> None:
        """Run no more actions."""
        self._clock.forget(self._read_end)

    @property
    def left(self) -> list[Callable[[], None]]:
        """The actions that were not run before `stop`."""
        found = []
        while not self._actions.empty():
            found.append(self._actions.get())
        return found

    def close(self) -> None:
        """Close the pipe, after `stop`."""
        with self._closing:
            self._is_open = False
            os.close(self._read_end)
            os.close(self._write_end)
