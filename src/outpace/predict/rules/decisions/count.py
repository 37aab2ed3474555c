"""The paper's decision: the count c with the largest E[c / x_(c)] (BDSGD, section 3)."""

from __future__ import annotations

import numpy as np

from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.decisions.plan import CutOffPlan


def best_count(draws: Seconds, objective: Objective, *, beyond: int = 0) -> CutOffPlan:
    """Among the counts above `beyond`. draws: shape (K, N), rows ascending, seconds."""
    counts = np.arange(beyond + 1, draws.shape[1] + 1)
    scores = objective.score(counts, draws[:, beyond:]).mean(axis=0)
    best = int(scores.argmax())
    return CutOffPlan(float(scores[best]), count=float(counts[best]))
