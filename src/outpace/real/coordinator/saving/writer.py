"""Writes files of checkpoints in another thread, so that the coordinator goes on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import torch

from outpace.real.collective.communication_thread import Waker
from outpace.real.net.clock import RealClock
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.tensors import checked, write_bytes

Done: TypeAlias = Callable[[Part | OSError], None]
_Job: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]
T = TypeVar("T")


class Write(Protocol):
    """Writes bytes, a uint8 tensor, to a file, and then calls `done`."""

    def __call__(self, path: Path, data: torch.Tensor, done: Done) -> None: ...


def write_now(path: Path, data: torch.Tensor, done: Done) -> None:
    """Write in this thread."""
    done(written_to(path, data))


class Beside(Protocol):
    """Does a job, and then calls `done` with what it returns."""

    def __call__(self, job: Callable[[], T], done: Callable[[T], None]) -> None: ...


def do_now(job: Callable[[], T], done: Callable[[T], None]) -> None:
    """Do it in this thread."""
    done(job())


class BesideWriter:
    """Writes in a thread of its own, which the first file starts. Implements `Write`.

    clock: of the thread in which `done` is called.
    """

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waker: Waker | None = None

    def __call__(self, path: Path, data: torch.Tensor, done: Done) -> None:
        self.do(partial(written_to, path, data), done)

    def do(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do a job after the earlier ones. See `Beside`."""
        self._jobs.put((job, done))
        if self._waker is None:
            self._waker = Waker(self._clock)
            work = partial(self._work, self._waker)
            threading.Thread(target=work, name="checkpoints", daemon=True).start()

    def _work(self, waker: Waker) -> None:
        while True:
            job, done = self._jobs.get()
            waker.call(partial(done, job()))
            del job  # frees what the job refers to


def written_to(path: Path, data: torch.Tensor) -> Part | OSError:
    """Write bytes, a uint8 tensor, to a file; return the file, or why it cannot be written."""
    try:
        write_bytes(path, data.numpy().data)
        return checked(path)
    except OSError as error:
        return error
