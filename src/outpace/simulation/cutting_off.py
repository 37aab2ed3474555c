"""The rule that cuts iterations off in virtual time, and the virtual time that it takes.

In a real run a model is fitted in a process of its own, while the rule of the last iterations
decides, and the scheduler handles no message while it predicts. In virtual time fits and
predictions are computed at once, and take no time, unless the configuration has
`rule_time: measured`: then they take as much virtual time as they take processor time on this
computer. The load of the computer hardly changes processor time, but it is never the same twice,
so such a run is not repeatable.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from outpace.engine.cut_offs import cut_off_rule, with_history
from outpace.engine.resuming import ResumePoint
from outpace.errors import RunError
from outpace.kernel import Kernel
from outpace.predict.interface import Model, Rule
from outpace.predict.models import Fitting, FittingAtOnce
from outpace.predict.recorded import RunTimes, Seconds
from outpace.predict.rules.wrappers import History
from outpace.support.notices import warn
from outpace.support.units import Time, nanoseconds

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class CutOffs:
    """Makes the rule of a run, which may have none.

    Attributes:
        history: of the rule, in a run with checkpoints.
        clock: of the time that the rule takes; None: it takes none.
    """

    def __init__(self, run: VirtualRun) -> None:
        self._run = run
        self._fitting: Fitting | None = None
        self.clock: RuleClock | None = None
        self.history: History | None = None

    @property
    def model(self) -> Model | None:
        """The run-time model that was fitted in this run, if any."""
        return None if self._fitting is None else self._fitting.model

    def new_rule(self, resume: ResumePoint | None, *, is_saved: bool) -> Rule | None:
        """Return the rule that says when iterations are cut off; None: they are not.

        Args:
            resume: the checkpoint whose observations it takes.
            is_saved: it is kept in checkpoints.
        """
        run, experiment = self._run, self._run.experiment
        settings = experiment.cut_off
        if settings is None:
            return None
        if settings.fitted_in_run:
            self._fitting = FittingAtOnce(settings.model, experiment.seed, settings.ordered)
        make = partial(cut_off_rule, experiment, settings, say=warn, truth=self._truth)
        if settings.rule_time == "measured":
            self.clock = RuleClock()
            make = partial(make, clock=self.clock)
            if self._fitting is not None:
                self._fitting = TimedFitting(self._fitting, run.kernel, self.clock)
        rule = make(fitting=self._fitting)
        if is_saved:
            rule = self.history = with_history(rule, resume)
        return rule

    def rule_again(self, clock: int) -> Rule | None:
        """Return another rule that has observed what the present one had until an iteration."""
        before = self.history
        rule = self.new_rule(None, is_saved=True)
        if before is not None and self.history is not None:
            self.history.resume(before.tensors(clock))
        return rule

    def _truth(self) -> Seconds:
        """Return the run times of all workers in the iteration that begins now."""
        run = self._run
        iteration, now = run.totals.closed, run.kernel.now
        times = np.full(run.experiment.workers, np.nan)
        for worker in range(run.experiment.workers):
            # After the last iteration of a recording the scheduler opens one more, which no
            # worker computes; a worker that does compute it ends the run with this error.
            with suppress(RunError):
                times[worker] = run.run_time(worker, iteration, now)
        return times


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
