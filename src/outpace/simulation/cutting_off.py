"""The rule that cuts iterations off in virtual time.

In a real run a model is fitted in a process of its own, while the rule of the last iterations
decides, and the scheduler handles no message while it predicts. In virtual time fits and
predictions are computed at once, and take no time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from outpace.engine.cut_offs import cut_off_rule, with_history
from outpace.engine.resuming import ResumePoint
from outpace.errors import RunError
from outpace.predict.interface import Model, Rule
from outpace.predict.models import Fitting, FittingAtOnce
from outpace.predict.recorded import Seconds
from outpace.predict.rules.wrappers import History
from outpace.support.notices import warn

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class CutOffs:
    """Makes the rule of a run, which may have none.

    Attributes:
        history: of the rule, in a run with checkpoints.
    """

    def __init__(self, run: VirtualRun) -> None:
        self._run = run
        self._fitting: Fitting | None = None
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
        experiment = self._run.experiment
        settings = experiment.cut_off
        if settings is None:
            return None
        if settings.fitted_in_run:
            self._fitting = FittingAtOnce(settings.model, experiment.seed, settings.ordered)
        rule = cut_off_rule(
            experiment, settings, say=warn, truth=self._truth, fitting=self._fitting
        )
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
