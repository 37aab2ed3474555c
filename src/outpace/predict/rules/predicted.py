"""Rules that decide from a model's predictions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np

from outpace.predict.interface import Filter, Prediction, Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions import (
    CutOffPlan,
    Decision,
    Objective,
    best_count_or_deadline,
    best_ends,
    settled,
)
from outpace.predict.rules.iteration import came


@dataclass
class Predicted(Rule):
    """Decides once, at the beginning of each iteration.

    The model's filter must have observed enough iterations before the first `begin` (see
    `WarmUp`).
    """

    following: Filter
    objective: Objective
    decision: Decision = best_count_or_deadline
    samples: int = 100  # joint draws per prediction

    def begin(self) -> Wait:
        plan = self.decision(self.draws(self.following.predict()), self.objective)
        return Wait(plan.count, settled(plan.until_s))

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.following.observe(seconds, censored)
        self.objective.observe(came(seconds, censored, ended_s), ended_s)

    def draws(self, prediction: Prediction) -> Seconds:
        """Return draws of the run times, shape (samples, N), each row ascending."""
        return np.sort(prediction.sample(self.samples), axis=1)


_SHARE: Final = 0.05  # largest share of an iteration's time spent on reviews
_COSTS: Final = 5  # the cost is the median of the last 5 predictions
_LEVELS: Final = (0.1, 0.5, 0.9)  # reviews take place at these quantiles of the draws' best ends


@dataclass
class Replan(Predicted):
    """Plans at the beginning of each iteration and revises the plan during it.

    A plan comes from a prediction (`best_count_or_deadline`). The rule reviews it when it would
    end, and earlier at times at which some draws should end: it conditions the prediction on
    the workers that have finished, and plans again. The iteration ends when the gradients
    received score at least as much as the best plan for waiting longer. So it ends early if
    workers that the plan expected do not finish, and continues if other workers are about to.
    After the last review the rule waits no longer than the longest draw.

    Args:
        reviews: most reviews of an iteration.
        clock: returns seconds, to measure the cost of predictions. Reviews that would take more
            than a twentieth of an iteration are made less often or not at all. Without a
            clock predictions cost nothing, so that virtual time is reproducible.
        note: called once if iterations are too short for reviews.
    """

    reviews: int = 8
    clock: Callable[[], float] = lambda: 0.0
    note: Callable[[str], None] = lambda _: None
    _noted: bool = field(default=False, init=False)
    _costs_s: deque[float] = field(default_factory=lambda: deque(maxlen=_COSTS), init=False)
    _iteration_s: float = field(default=math.inf, init=False)
    _left: int = field(default=0, init=False)  # reviews
    _prediction: Prediction | None = field(default=None, init=False)

    def begin(self) -> Wait:
        start = self.clock()
        self._prediction = self.following.predict()
        draws = self.draws(self._prediction)
        plan = best_count_or_deadline(draws, self.objective)
        self._costs_s.append(self.clock() - start)
        self._left = self._affordable(median(self._costs_s))
        return self._until(plan, draws, 0.0)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        assert self._prediction is not None, "reviewed before it began"
        self._left -= 1
        here = int(np.count_nonzero(~np.isnan(arrived)))
        draws = self.draws(self._prediction.given(arrived, elapsed_s))
        plan = best_count_or_deadline(draws, self.objective, beyond=here, after_s=elapsed_s)
        if here and float(self.objective.score(here, elapsed_s)) >= plan.score:
            return Wait(count=here)
        return self._until(plan, draws, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._iteration_s = ended_s
        super().observe(seconds, censored, ended_s)

    def _affordable(self, cost_s: float) -> int:
        if cost_s * self.reviews <= _SHARE * self._iteration_s:
            return self.reviews
        affordable = int(_SHARE * self._iteration_s / cost_s)
        if not affordable and not self._noted:
            self._noted = True
            self.note(
                f"a prediction takes {1e3 * cost_s:.1f} ms, and iterations of "
                f"{1e3 * self._iteration_s:.1f} ms are too short to plan again in them: most "
                "follow the first plan"
            )
        return affordable

    def _until(self, plan: CutOffPlan, draws: Seconds, now: float) -> Wait:
        until_s = plan.until_s
        if until_s == math.inf:  # the count is reached by then in every draw
            until_s = float(draws[:, int(plan.count) - 1].max())
        if not self._left:  # no later review could detect that the count is never reached
            return Wait(plan.count, settled(until_s))
        if self._left > 1:
            ends = best_ends(draws, self.objective)[1]
            early = ends[(ends > now) & (ends < until_s)]
            if len(early):
                until_s = next(t for t in np.quantile(early, _LEVELS) if t > now)
        return Wait(again_s=settled(until_s), again_count=plan.count)
