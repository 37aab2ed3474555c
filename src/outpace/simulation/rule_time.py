"""The virtual time that a cut-off rule takes, where the configuration has `rule_time: measured`.

In a real run a model is fitted in a process of its own, while the rule of the last iterations
decides, and the scheduler handles no message while it predicts. In virtual time fits and
predictions are computed at once. Here they take as much virtual time as they take processor time on
this computer. The load of the computer hardly changes processor time, but it is never the same
twice, so such a run is not repeatable.
"""

from __future__ import annotations

import time

from outpace.kernel import Kernel
from outpace.predict.interface import Model
from outpace.predict.models import Fitting
from outpace.predict.recorded.table import RunTimes
from outpace.support.units import Time, nanoseconds


class RuleClock:
    """Seconds of processor time that this thread has spent, fits excepted."""

    def __init__(self) -> None:
        self.fits_s = 0.0

    def __call__(self) -> float:
        return time.thread_time() - self.fits_s


class TimedFitting(Fitting):
    """Each fit is done when as much virtual time has passed as it took processor time."""

    def __init__(self, fitting: Fitting, kernel: Kernel, clock: RuleClock) -> None:
        self.model: Model | None = None
        self._fitting, self._kernel, self._clock = fitting, kernel, clock
        self._due: Time = 0

    def start(self, history: RunTimes) -> None:
        started = self._clock()
        self._fitting.start(history)
        took_s = self._clock() - started
        self._clock.fits_s += took_s
        self._due = self._kernel.now + nanoseconds(took_s)

    def done(self) -> bool:
        if self._kernel.now < self._due:
            return False
        self.model = self._fitting.model
        return True
