"""P_s: a thread beside the training that synchronises (HPSGD, section 3.1).

It does one thing after the other, each of which may block; what comes of it is told in the
thread of the training. One that belongs to a group in which somebody is gone is abandoned: it
ends when its last operation fails, which nobody waits for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch

from outpace.real.collective.bell import Bell
from outpace.real.collective.group import Group

Done: TypeAlias = Callable[[], None]  # what to do in the training's thread
Job: TypeAlias = Callable[[Group], Done]


class Line:
    """Of one group, which it makes. broken: told, by the bell, why it can do no more."""

    def __init__(
        self, bell: Bell, make_group: Callable[[], Group], broken: Callable[[str], None]
    ) -> None:
        self._bell, self._make_group, self._broken = bell, make_group, broken
        self._threads = torch.get_num_threads()  # a new thread would have one per core
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="synchronisation", daemon=True)
        self._thread.start()

    def do(self, job: Job) -> None:
        """Do it after those before."""
        self._jobs.put(job)

    def abandon(self) -> None:
        """Tell nothing more; end."""
        self._abandoned = True
        self._jobs.put(None)

    def join(self, limit_s: float) -> None:
        """After `abandon`, wait for its end: a process should not end under it."""
        self._thread.join(limit_s)

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            group = self._make_group()
            while (job := self._jobs.get()) is not None:
                self._tell(job(group))
                del job  # and what it holds
        except RuntimeError as error:
            self._tell(partial(self._broken, str(error)))
        except (
            Exception
        ) as error:  # nobody's leaving: the training's thread shall not wait for ever
            self._tell(partial(_raise, error))

    def _tell(self, done: Done) -> None:
        def unless_abandoned() -> None:
            if not self._abandoned:
                done()

        self._bell.ring(unless_abandoned)


def _raise(error: Exception) -> None:
    raise error
