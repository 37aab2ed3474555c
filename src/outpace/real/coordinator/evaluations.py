"""Evaluating while the run goes on: in a thread, one snapshot after the other.

The coordinator's loop hears and decides meanwhile; torch's operations leave it the
interpreter.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

import torch

from outpace.blocks.block import Block
from outpace.errors import OutpaceError
from outpace.real.collective.waker import Waker
from outpace.real.net.clock import RealClock

T = TypeVar("T")
_Job: TypeAlias = tuple[Sequence[Block], Callable[[T], None]]


class Evaluations(Generic[T]):
    """What `evaluate` makes of blocks. What it raises is raised where the outcome would be told."""

    def __init__(self, clock: RealClock, evaluate: Callable[[Sequence[Block]], T]) -> None:
        self._evaluate = evaluate
        self._threads = torch.get_num_threads()  # a new thread would have one per core
        self._jobs: queue.SimpleQueue[_Job[T] | None] = queue.SimpleQueue()
        self._waker = Waker(clock)
        self._thread: threading.Thread | None = None
        self._owed = 0
        self.closed = False

    def begin(self, blocks: Sequence[Block], told: Callable[[T], None]) -> None:
        """Evaluate these after those before; the clock's thread is `told` the outcome."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
            self._thread.start()
        self._owed += 1
        self._jobs.put((blocks, told))

    def settle(self) -> None:
        """Wait for all that was begun, and tell."""
        while self._owed:
            self._waker.run_next()

    def close(self, limit_s: float = math.inf) -> None:
        """Wait for the one that is under way and tell; those that have not begun are left out.

        If it takes longer it is left to itself: it tells nobody, and ends with this process.
        """
        self.closed = True
        self._waker.stop()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(None if limit_s == math.inf else limit_s)
            if self._thread.is_alive():
                return  # and so it may still ring
        with contextlib.suppress(OutpaceError):  # why this is closed is known already
            for tell in self._waker.left:
                tell()
        self._waker.close()

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while (job := self._jobs.get()) is not None and not self.closed:
            self._waker.call(self._outcome(*job))

    def _outcome(self, blocks: Sequence[Block], told: Callable[[T], None]) -> Callable[[], None]:
        failure, found = None, []
        try:
            found.append(self._evaluate(blocks))
        except BaseException as error:
            failure = error

        def tell() -> None:
            self._owed -= 1
            if failure is not None:
                raise failure
            told(*found)

        return tell
