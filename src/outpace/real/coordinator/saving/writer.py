"""Writes files of checkpoints in another thread, so that the coordinator goes on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import torch

from outpace.real.collective.communication_thread import Waker
from outpace.real.net.clock import RealClock
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.tensors import checked, write_bytes

Done: TypeAlias = Callable[[Part | OSError], None]
_Job: TypeAlias = tuple[Path, torch.Tensor, Done]


class Write(Protocol):
    """Writes bytes, a uint8 tensor, to a file, and then calls `done`."""

    def __call__(self, path: Path, data: torch.Tensor, done: Done) -> None: ...


def write_now(path: Path, data: torch.Tensor, done: Done) -> None:
    """Write in this thread."""
    done(_written(path, data))


class BesideWriter:
    """Writes in a thread of its own, which the first file starts. Implements `Write`.

    clock: of the thread in which `done` is called.
    """

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waker: Waker | None = None

    def __call__(self, path: Path, data: torch.Tensor, done: Done) -> None:
        self._jobs.put((path, data, done))
        if self._waker is None:
            self._waker = Waker(self._clock)
            work = partial(self._work, self._waker)
            threading.Thread(target=work, name="checkpoints", daemon=True).start()

    def _work(self, waker: Waker) -> None:
        while True:
            path, data, done = self._jobs.get()
            waker.call(partial(done, _written(path, data)))


def _written(path: Path, data: torch.Tensor) -> Part | OSError:
    try:
        write_bytes(path, data.numpy().data)
        return checked(path)
    except OSError as error:
        return error
