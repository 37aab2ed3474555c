"""A thread for long jobs of a process, such as writing files and evaluating.

The process continues in parallel, because operations of torch and on files release the interpreter.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import torch

from outpace.errors import OutpaceError
from outpace.real.net.clock import RealClock
from outpace.real.net.waker import Waker

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]


class RunInBackground(Protocol):
    """Does a job, and then calls `done` with the job's result."""

    def __call__(self, job: Callable[[], T], done: Callable[[T], None]) -> None: ...


def do_now(job: Callable[[], T], done: Callable[[T], None]) -> None:
    """Do a job in the thread that asks for it. See `RunInBackground`."""
    done(job())


class BackgroundThread:
    """Runs one job after another. The first one starts the thread.

    Args:
        clock: clock of the thread in which `done` is called. An error of a job is also raised
            there.
        threads: number of threads that torch uses in this thread; a new thread would use one per
            core.
    """

    def __init__(self, clock: RealClock, name: str = "checkpoints", threads: int = 1) -> None:
        self._clock, self._name, self._threads = clock, name, threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waker: Waker | None = None
        self._thread: threading.Thread | None = None
        self._owed = 0  # number of jobs whose results were not passed on
        self.closed = False

    def do(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do a job after the earlier ones. See `RunInBackground`."""
        if self._waker is None:
            self._waker = Waker(self._clock)
            work = partial(self._work, self._waker)
            self._thread = threading.Thread(target=work, name=self._name, daemon=True)
            self._thread.start()
        self._owed += 1
        self._jobs.put((job, done))

    def move_to(self, clock: RealClock) -> None:
        """Pass on results in the thread of another clock from now on."""
        self._clock = clock
        if self._waker is not None:
            self._waker.move_to(clock)

    def settle(self) -> None:
        """Wait for all jobs so far, and pass on their results. Call it in the clock's thread."""
        while self._owed and self._waker is not None:
            self._waker.run_next()

    def close(self, limit_s: float | None = None) -> None:
        """Wait up to `limit_s` for the running job and pass on its result; drop the others.

        A job that takes longer is abandoned, and its thread ends with this process.
        """
        self.closed = True
        if self._waker is None or self._thread is None:
            return
        self._waker.stop()
        self._jobs.put(None)
        self._thread.join(limit_s)
        with contextlib.suppress(OutpaceError):  # the error that ended the run was reported before
            for tell in self._waker.left:
                tell()
        self._waker.close()

    def _work(self, waker: Waker) -> None:
        torch.set_num_threads(self._threads)
        while (each := self._jobs.get()) is not None and not self.closed:
            job, done = each
            try:
                action = partial(done, job())
            except BaseException as error:  # the other thread must not wait for the result
                action = partial(_raise, error)
            waker.call(partial(self._hand_over, action))
            del each, job, done, action  # frees the objects that they refer to

    def _hand_over(self, action: Callable[[], None]) -> None:
        self._owed -= 1
        action()


def _raise(error: BaseException) -> None:
    raise error
