"""A thread that communicates while the training computes (P_s in HPSGD, section 3.1).

The thread runs one job after another. A job may block; its result is passed on in the training
thread, which a `Waker` wakes if it is waiting. When a worker of the group is lost, the thread is
abandoned: it ends when its current operation fails, and the training does not wait for this.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch

from outpace.real.collective.group import Group
from outpace.real.net.waker import Waker
from outpace.support.gpu_errors import is_gpu_error

_T = TypeVar("_T")
_Job: TypeAlias = tuple[Callable[[Group], Any], Callable[[Any], object]]  # see `do`


class CommunicationThread:
    """Makes a process group and runs jobs on it.

    Args:
        make_group: called in the new thread.
        broken: called in the training thread with the reason if the group cannot be used any more.
    """

    def __init__(
        self, waker: Waker, make_group: Callable[[], Group], broken: Callable[[str], None]
    ) -> None:
        self._waker, self._make_group, self._broken = waker, make_group, broken
        self._threads = torch.get_num_threads()  # a new thread would have one per core
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="communication", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[Group], _T], done: Callable[[_T], object]) -> None:
        """Run a job after the earlier ones; call `done` in the training thread with the result."""
        self._jobs.put((job, done))

    def abandon(self) -> None:
        """Report no more results, and end after the queued jobs."""
        self._abandoned = True
        self._jobs.put(None)

    def join(self, limit_s: float) -> None:
        """Wait for the thread to end, after `abandon` and before the process exits.

        A thread that releases its group while the interpreter ends would abort the process.
        """
        self._thread.join(limit_s)

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            group = self._make_group()
            while (asked := self._jobs.get()) is not None:
                job, done = asked
                self._report(partial(done, job(group)))
                del asked, job, done  # frees the objects that they refer to
        except Exception as error:
            if isinstance(error, RuntimeError) and not is_gpu_error(error):
                self._report(partial(self._broken, str(error)))
            else:  # the error is not a lost worker; the training must not wait for it
                self._report(partial(_raise, error))

    def _report(self, action: Callable[[], object]) -> None:
        """Call this in the training thread, unless this thread is abandoned before."""

        def unless_abandoned() -> None:
            if not self._abandoned:
                action()

        self._waker.call(unless_abandoned)


def _raise(error: Exception) -> None:
    raise error
