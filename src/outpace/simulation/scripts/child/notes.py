"""`outpace.log` and `outpace.untimed` of a script in virtual time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from outpace.engine.scripts.misuse import require_log
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.child.stopwatch import Stopwatch
from outpace.simulation.scripts.messages import Logged, Warns


class ScriptNotes:
    """The notes of a script to the simulation.

    Args:
        name: of its worker.
        clock: stands still in untimed code.
    """

    def __init__(self, pipe: ScriptPipe, name: str, clock: Stopwatch) -> None:
        self._pipe, self._name, self._clock = pipe, name, clock
        self._pid = os.getpid()
        self._untimed = 0  # contexts that the script is in

    @property
    def is_copy(self) -> bool:
        """True in a process that the script has forked: it has a copy of this object."""
        return os.getpid() != self._pid

    @property
    def is_untimed(self) -> bool:
        """True within `outpace.untimed`."""
        return self._untimed > 0

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """See `outpace.untimed`."""
        self._untimed += 1
        try:
            with self._clock.paused():
                yield
        finally:
            self._untimed -= 1

    def tell(self, text: str) -> None:
        """See `Place.tell`."""
        if not self.is_copy:
            self._pipe.send(Warns(text))

    def log(self, values: Mapping[str, float]) -> None:
        """See `outpace.log`; also after `outpace.finish`."""
        require_log(self._name, copy=self.is_copy)
        self._pipe.send(Logged(dict(values)))
