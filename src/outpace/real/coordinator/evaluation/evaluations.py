"""Evaluates snapshots one after the other in a thread, while the run goes on.

The coordinator's loop works meanwhile, because torch's operations release the interpreter.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

import torch

from outpace.blocks.block import Block
from outpace.errors import OutpaceError
from outpace.real.collective.communication_thread import Waker
from outpace.real.net.clock import RealClock

T = TypeVar("T")
_Job: TypeAlias = tuple[Sequence[Block], Callable[[T], None]]


class Evaluations(Generic[T]):
    """Calls `evaluate` with blocks; an error of it is raised in the clock's thread."""

    def __init__(self, clock: RealClock, evaluate: Callable[[Sequence[Block]], T]) -> None:
        self._evaluate = evaluate
        self._threads = torch.get_num_threads()  # a new thread would have one per core
        self._jobs: queue.SimpleQueue[_Job[T] | None] = queue.SimpleQueue()
        self._waker = Waker(clock)
        self._thread: threading.Thread | None = None
        self._owed = 0
        self.closed = False

    def begin(self, blocks: Sequence[Block], told: Callable[[T], None]) -> None:
        """Queue an evaluation; `told` is called with its outcome in the clock's thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
            self._thread.start()
        self._owed += 1
        self._jobs.put((blocks, told))

    def move_to(self, clock: RealClock) -> None:
        """Tell the outcomes in the thread of another clock from now on."""
        self._waker.move_to(clock)

    def settle(self) -> None:
        """Wait for all queued evaluations and tell their outcomes."""
        while self._owed:
            self._waker.run_next()

    def close(self, limit_s: float | None = None) -> None:
        """Wait up to `limit_s` for the running evaluation and tell its outcome; drop the others.

        An evaluation that takes longer is abandoned, and its thread ends with this process.
        """
        self.closed = True
        self._waker.stop()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(limit_s)
            if self._thread.is_alive():
                return  # it may still use the waker
        with contextlib.suppress(OutpaceError):  # the error that ended the run is known already
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
