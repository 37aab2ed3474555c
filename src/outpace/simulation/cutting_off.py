"""The rule that cuts off iterations in virtual time.

In a real run a model is fitted in a separate process, while the rule of the last iterations
decides, and the scheduler handles no message during a prediction. In virtual time fits and
predictions are computed at once, and take no time.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from outpace.engine.cut_offs import cut_off_rule
from outpace.errors import RunError
from outpace.predict.interface import Model, Rule
from outpace.predict.models import Fitting, FittingAtOnce
from outpace.predict.recorded import Seconds
from outpace.support.notices import warn

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class CutOffs:
    """Makes the cut-off rule of a run, if the run has one."""

    def __init__(self, run: VirtualRun) -> None:
        self._run = run
        self._fitting: Fitting | None = None

    @property
    def model(self) -> Model | None:
        """The run-time model that was fitted in this run, if any."""
        return None if self._fitting is None else self._fitting.model

    @cached_property
    def rule(self) -> Rule | None:
        """The rule that decides when iterations are cut off; None if none are."""
        experiment = self._run.experiment
        settings = experiment.cut_off
        if settings is None:
            return None
        if settings.fitted_in_run:
            self._fitting = FittingAtOnce(settings.model, experiment.seed, settings.ordered)
        return cut_off_rule(
            experiment, settings, say=warn, truth=self._truth, fitting=self._fitting
        )

    def _truth(self) -> Seconds:
        """Return the run times of all workers in the iteration that begins now."""
        run = self._run
        iteration, now = run.totals.closed, run.kernel.now
        times = np.full(run.experiment.workers, np.nan)
        for worker in range(run.experiment.workers):
            # After the last iteration of a recording the scheduler opens one more iteration, which
            # no worker should compute; a worker that computes it ends the run with this error.
            with suppress(RunError):
                times[worker] = run.run_time(worker, iteration, now)
        return times
