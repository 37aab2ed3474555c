"""P_s: a thread beside the training that communicates (HPSGD, section 3.1).

It does one job after the other, each of which may block, and reports the results in the thread of
the training. When a worker of its group is lost the thread is abandoned: it ends when its last
operation fails, and nothing waits for that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch

from outpace.real.collective.group import Group
from outpace.real.collective.waker import Waker

Done: TypeAlias = Callable[[], None]  # what to do in the training's thread
Job: TypeAlias = Callable[[Group], Done]


class CommunicationThread:
    """Works for one group, which it makes.

    Args:
        make_group: called in the new thread.
        broken: told, in the training's thread, why the group can be used no more.
    """

    def __init__(
        self, waker: Waker, make_group: Callable[[], Group], broken: Callable[[str], None]
    ) -> None:
        self._waker, self._make_group, self._broken = waker, make_group, broken
        self._threads = torch.get_num_threads()  # a new thread would have one per core
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="communication", daemon=True)
        self._thread.start()

    def do(self, job: Job) -> None:
        """Do it after the earlier jobs."""
        self._jobs.put(job)

    def abandon(self) -> None:
        """Report nothing more, and end."""
        self._abandoned = True
        self._jobs.put(None)

    def join(self, limit_s: float) -> None:
        """Wait for its end, after `abandon`: a process should not end under it."""
        self._thread.join(limit_s)

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            group = self._make_group()
            while (job := self._jobs.get()) is not None:
                self._report(job(group))
                del job  # and what it holds
        except RuntimeError as error:
            self._report(partial(self._broken, str(error)))
        except Exception as error:  # not a lost worker: else the training would wait without end
            self._report(partial(_raise, error))

    def _report(self, done: Done) -> None:
        def unless_abandoned() -> None:
            if not self._abandoned:
                done()

        self._waker.call(unless_abandoned)


def _raise(error: Exception) -> None:
    raise error
