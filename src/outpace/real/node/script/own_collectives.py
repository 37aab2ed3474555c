"""The time that a script's own collectives, such as barriers and sums of metrics, take a worker."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from outpace.engine.distributed.call import Call
from outpace.real.collective.observer import Observer
from outpace.real.node.script.worker_script import WorkerScript
from outpace.support.units import Time

_END_S: Final = 2.0  # to learn that the run has ended, when a collective breaks


class OwnCollectives(Observer):
    """Notes collectives in the records of a worker.

    It is the observer itself if the strategy exchanges the gradients: there are no buckets then.
    """

    def __init__(self, attached: WorkerScript) -> None:
        self._attached, self._thread, self._pid = attached, threading.get_ident(), os.getpid()
        self._has_paused = False

    @property
    def now(self) -> Time:
        return self._attached.process.now

    def attend(self) -> bool:
        return self._is_here and self._attached.attend()

    def waiting(self) -> None:
        if self._is_here and not self._has_paused:
            self._has_paused = self._attached.pause()

    def waited(self, call: Call, begun: int, ended: int, *, in_computation: bool = True) -> None:
        """See `Observer`.

        Args:
            in_computation: True if the wait is within the computation of a gradient; False if it
                is between the end of that and the end of the iteration.
        """
        if self._is_here:
            if self._has_paused:
                self._has_paused = False
                self._attached.resume()
            origin = self._attached.process.clock.origin
            self._attached.waited_outside(
                call.number, begun - origin, ended - origin, in_computation=in_computation
            )

    def broken(self, call: Call) -> None:
        # On a GPU a thread of torch hands buckets over, while the script waits in `backward()`.
        is_in_backward = call.bucket is not None and os.getpid() == self._pid
        if self._is_here or is_in_backward:
            self._attached.exit_if_over(_END_S)

    def missed(self, call: Call, begun: int) -> None:
        if self._is_here:
            self.waited(call, begun, time.monotonic_ns())
            self._attached.exit_at_limit()

    @property
    def _is_here(self) -> bool:
        """True in the thread and process of the training, which alone may report."""
        return (threading.get_ident(), os.getpid()) == (self._thread, self._pid)
