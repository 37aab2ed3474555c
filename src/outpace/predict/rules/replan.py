"""Planning again in the course of an iteration, from who has come and who has not."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np

from outpace.predict.interface import Filter, Prediction, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions.count_or_deadline import best_count_or_deadline, best_ends
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.decisions.plan import CutOffPlan
from outpace.predict.rules.iteration import came
from outpace.support.checks import require

REVIEWS: Final = 8  # in an iteration
_SHARE: Final = 0.05  # of an iteration's time, for all of its reviews
_COSTS: Final = 5  # predictions, whose median counts: a single one may be held up
_LEVELS: Final = (0.1, 0.5, 0.9)  # of the draws' best ends: where to look again


class Replan:
    """Stops when what has come scores at least what the best plan for going on is expected to.

    It plans from a prediction (`best_count_or_deadline`). Where the plan would end, and
    before that at times at which some of the draws had better end, it conditions the
    prediction on who has come and who has not, and plans again. So it stops early when
    workers that the plan counted on fail to come, and goes on when those are about to come
    that it did not count on. After the last review it waits no longer than in the
    longest of the draws, for whatever count.

    clock: a prediction is timed by it. If the reviews would take more than a twentieth of an
    iteration there are fewer of them, down to none: on a fast network the plan is followed
    as it is, of which `note` is told once. Without a clock predictions cost nothing, so
    that virtual time is reproducible.
    """

    def __init__(
        self,
        following: Filter,
        objective: Objective,
        *,
        samples: int = 100,
        reviews: int = REVIEWS,
        clock: Callable[[], float] = lambda: 0.0,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        require(samples >= 1, "samples", "at least 1", samples)
        require(reviews >= 0, "reviews", "at least 0", reviews)
        self._filter = following
        self._objective = objective
        self._samples = samples
        self._reviews = reviews
        self._clock = clock
        self._note: Callable[[str], None] | None = note
        self._costs_s: deque[float] = deque(maxlen=_COSTS)
        self._iteration_s = math.inf
        self._left = 0
        self._prediction: Prediction | None = None

    def begin(self) -> Wait:
        start = self._clock()
        self._prediction = self._filter.predict()
        draws = self._draws(self._prediction)
        plan = best_count_or_deadline(draws, self._objective)
        self._costs_s.append(self._clock() - start)
        self._left = self._affordable(median(self._costs_s))
        return self._until(plan, draws, 0.0)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        assert self._prediction is not None, "asked again before it began"
        self._left -= 1
        here = int(np.count_nonzero(~np.isnan(arrived)))
        draws = self._draws(self._prediction.given(arrived, elapsed_s))
        plan = best_count_or_deadline(draws, self._objective, beyond=here, after_s=elapsed_s)
        if here and float(self._objective.score(here, elapsed_s)) >= plan.score:
            return Wait(count=here)
        return self._until(plan, draws, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._iteration_s = ended_s
        self._filter.observe(seconds, censored)
        self._objective.observe(came(seconds, censored, ended_s), ended_s)

    def _draws(self, prediction: Prediction) -> Seconds:
        return np.sort(prediction.sample(self._samples), axis=1)

    def _affordable(self, cost_s: float) -> int:
        if cost_s * self._reviews <= _SHARE * self._iteration_s:
            return self._reviews
        affordable = int(_SHARE * self._iteration_s / cost_s)
        if not affordable and self._note is not None:
            self._note(
                f"iterations of {1e3 * self._iteration_s:.1f} ms are too short to plan again in "
                f"them, where a prediction takes {1e3 * cost_s:.1f}: most follow the first plan"
            )
            self._note = None
        return affordable

    def _until(self, plan: CutOffPlan, draws: Seconds, now: float) -> Wait:
        until_s = plan.until_s
        if until_s == math.inf:  # by when the count should have come by far
            until_s = float(draws[:, int(plan.count) - 1].max())
        if not self._left:  # nobody would find out that it never comes
            return Wait(plan.count, until_s)
        if self._left > 1:
            ends = best_ends(draws, self._objective)[1]
            early = ends[(ends > now) & (ends < until_s)]
            if len(early):
                until_s = next(t for t in np.quantile(early, _LEVELS) if t > now)
        return Wait(again_s=until_s, again_count=plan.count)
