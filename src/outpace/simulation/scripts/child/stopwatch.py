"""Measures how long a script computes a gradient, for the law `measured`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measures how long the script computes a gradient.

    The time between a step and the next forward pass counts, because data is loaded then, unless
    the script has evaluated in it without saying so by `outpace.untimed`.

    Attributes:
        has_evaluated: True if the script has evaluated since the last step.
    """

    def __init__(self) -> None:
        self._started = self._left_out = 0.0
        self.has_evaluated = self._is_spoilt = False

    def start(self) -> None:
        self._started, self._left_out = time.perf_counter(), 0.0
        self.has_evaluated = self._is_spoilt = False

    def evaluates(self) -> None:
        self.has_evaluated = self._is_spoilt = True

    def computes(self) -> None:
        if self._is_spoilt:
            self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        since, self.has_evaluated = time.perf_counter(), True
        try:
            yield
        finally:
            self._left_out += time.perf_counter() - since

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Leave out the time for which the script waits for other workers."""
        since = time.perf_counter()
        try:
            yield
        finally:
            self._left_out += time.perf_counter() - since

    def read(self) -> float:
        return time.perf_counter() - self._started - self._left_out
