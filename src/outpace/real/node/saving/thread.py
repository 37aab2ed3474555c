"""A thread that writes files of checkpoints beside the work of a process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import torch

from outpace.real.collective.communication_thread import Waker
from outpace.real.net.clock import RealClock

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]


class Beside(Protocol):
    """Does a job, and then calls `done` with its result."""

    def __call__(self, job: Callable[[], T], done: Callable[[T], None]) -> None: ...


def do_now(job: Callable[[], T], done: Callable[[T], None]) -> None:
    """Do a job in the thread that asks for it. See `Beside`."""
    done(job())


class WritingThread:
    """Runs one job after another. The first one starts the thread.

    Args:
        clock: of the thread in which `done` is called. An error of a job is raised there, too.
    """

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waker: Waker | None = None
        self._thread: threading.Thread | None = None

    def do(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do a job after the earlier ones. See `Beside`."""
        self._jobs.put((job, done))
        if self._waker is None:
            self._waker = Waker(self._clock)
        if self._thread is None:
            work = partial(self._work, self._waker)
            self._thread = threading.Thread(target=work, name="checkpoints", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for the jobs so far, and hand their results over. In the thread of the clock."""
        if self._thread is not None and self._waker is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
            self._waker.run_all()

    def _work(self, waker: Waker) -> None:
        torch.set_num_threads(1)  # a new thread would have one per core
        while (each := self._jobs.get()) is not None:
            job, done = each
            try:
                action = partial(done, job())
            except Exception as error:  # the other thread must not wait for the result
                action = partial(_raise, error)
            waker.call(action)
            del each, job, done, action  # frees what they refer to


def _raise(error: Exception) -> None:
    raise error
