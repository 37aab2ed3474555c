"""What a decision comes to: a count, a deadline or both, and what it is expected to score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.decisions.objective import Objective


@dataclass(frozen=True, slots=True)
class CutOffPlan:
    """Wait until so many have come or so long has passed; `score`: the mean over the draws."""

    score: float
    count: float = math.inf
    until_s: float = math.inf

    @property
    def wait(self) -> Wait:
        return Wait(count=self.count, until_s=self.until_s)


# Of draws of one iteration's run times, shape (K, N), every row in ascending order.
Decision: TypeAlias = Callable[[Seconds, Objective], CutOffPlan]
