"""A thread that writes parts of checkpoints beside the work of a process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import torch

from outpace.real.collective.communication_thread import Waker
from outpace.real.net.clock import RealClock

AnswerT = TypeVar("AnswerT")


class WritingThread(Generic[AnswerT]):
    """Runs one job after another; what each returns is sent in the thread of the clock.

    send: sends it to the coordinator.
    """

    def __init__(self, clock: RealClock, send: Callable[[AnswerT], None]) -> None:
        self._clock, self._send = clock, send
        self._jobs: queue.SimpleQueue[Callable[[], AnswerT]] = queue.SimpleQueue()
        self._waker: Waker | None = None

    def do(self, job: Callable[[], AnswerT]) -> None:
        """Run a job after the earlier ones. The first one starts the thread."""
        self._jobs.put(job)
        if self._waker is None:
            self._waker = Waker(self._clock)
            work = partial(self._work, self._waker)
            threading.Thread(target=work, name="checkpoints", daemon=True).start()

    def _work(self, waker: Waker) -> None:
        torch.set_num_threads(1)  # a new thread would have one per core
        while True:
            job = self._jobs.get()
            waker.call(partial(self._send, job()))
            del job  # frees what the job refers to
