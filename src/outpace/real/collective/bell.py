"""How other threads have something called in the thread of a clock, which may be asleep."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable

from outpace.real.net.clock import RealClock


class Bell:
    """Belongs to the clock's thread; `ring` is for the others."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._end, self._cord = os.pipe()
        clock.watch(self._end, self.answer)

    def ring(self, action: Callable[[], None]) -> None:
        """Have it called when the clock's thread looks around, after those before it."""
        self._actions.put(action)
        os.write(self._cord, b".")

    def answer(self) -> None:
        """Call the next one; waits for it."""
        os.read(self._end, 1)
        self._actions.get()()

    def silence(self) -> None:
        """Answer no more."""
        self._clock.forget(self._end)

    @property
    def left(self) -> list[Callable[[], None]]:
        """What was not answered before it was silenced."""
        found = []
        while not self._actions.empty():
            found.append(self._actions.get())
        return found

    def close(self) -> None:
        """After `silence`, when nobody can ring any more."""
        os.close(self._end)
        os.close(self._cord)
