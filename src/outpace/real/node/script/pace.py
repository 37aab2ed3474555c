"""When a worker sends what its script keeps, for a process that may take its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from outpace.real.node.member import REPORT_EVERY_S

_SHARE: Final = 0.01  # of the time of the script, for the copies


class Pace:
    """Has a state sent as often as reports, but so that copies take 1 % of the time at most.

    A new process counts the iterations from a state to the one to go on with. So a state is also
    sent after a worker has passed over iterations.

    Args:
        clock: in seconds.
    """

    def __init__(self, *, reports: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._reports, self._clock = reports, clock
        self._next = 0.0

    def is_due(self, iteration: int, before: int | None) -> bool:
        """Return whether the state at the beginning of an iteration is sent.

        Args:
            before: the iteration that the script began last; None: it begins its first one.
        """
        is_next = before is not None and iteration == before + 1
        return self._reports and (not is_next or self._clock() >= self._next)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a copy."""
        began = self._clock()
        yield
        now = self._clock()
        self._next = now + max(REPORT_EVERY_S, (now - began) / _SHARE)

    def stop(self) -> None:
        """Have no more states sent: they are too large, or cannot be sent."""
        self._reports = False
