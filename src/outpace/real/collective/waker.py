"""Calls from other threads into the thread of a clock, which may be asleep."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable

from outpace.real.net.clock import RealClock


class Waker:
    """Runs actions of other threads in the clock's thread. Other threads may only use `call`."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        clock.watch(self._read_end, self.run_next)

    def call(self, action: Callable[[], None]) -> None:
        """Run an action in the clock's thread, after the earlier ones."""
        self._actions.put(action)
        os.write(self._write_end, b".")

    def run_next(self) -> None:
        """Wait for the next action and run it."""
        os.read(self._read_end, 1)
        self._actions.get()()

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
        """Close the pipe, after `stop`, once no thread can use `call` any more."""
        os.close(self._read_end)
        os.close(self._write_end)
