"""A model's prediction and a decision, once at the beginning of an iteration."""

from __future__ import annotations

import numpy as np

from outpace.predict.interface import Filter, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.decisions.plan import Decision
from outpace.predict.rules.iteration import came
from outpace.support.checks import require


class Predicted:
    """Its filter must have observed what it needs before the first `begin` (see `WarmUp`)."""

    def __init__(
        self, following: Filter, decision: Decision, objective: Objective, *, samples: int = 100
    ) -> None:
        require(samples >= 1, "samples", "at least 1", samples)
        self._filter = following
        self._decision = decision
        self._objective = objective
        self._samples = samples

    def begin(self) -> Wait:
        draws = np.sort(self._filter.predict().sample(self._samples), axis=1)
        return self._decision(draws, self._objective).wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        raise AssertionError("never asks to be asked again")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._filter.observe(seconds, censored)
        self._objective.observe(came(seconds, censored, ended_s), ended_s)
