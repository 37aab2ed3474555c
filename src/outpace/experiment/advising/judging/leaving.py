"""Whether runs that reached the target left it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from outpace.experiment.advising.question.curves import Curve, Goal

_MARGIN: Final = 1.1  # times the loss of the target, or the share of errors that it allows


def after_target(curves: Sequence[Curve], goal: Goal) -> dict[str, Any]:
    """Return how many runs continued after the target, and how many of them left it again.

    A run has left it if its last evaluation is worse by more than a tenth: of the loss, or of the
    share of errors. Runs that ended at the target do not count.

    Returns:
        `runs`, `left`, and `worst`: the worst last accuracy or loss of those that left; None
        without any.
    """
    went_on = [
        curve
        for curve in curves
        if (at := curve.first_s(goal.level)) is not None and curve.end_s > at
    ]
    worst = min((curve.last for curve in went_on if _has_left(curve.last, goal)), default=None)
    return {
        "runs": len(went_on),
        "left": sum(_has_left(curve.last, goal) for curve in went_on),
        "worst": None if worst is None else abs(worst),
    }


def _has_left(score: float, goal: Goal) -> bool:
    if goal.accuracy is not None:
        return 1 - score > _MARGIN * (1 - goal.accuracy) and score < goal.accuracy
    assert goal.loss is not None
    # A negative loss has no share: any loss above it counts.
    return -score > max(_MARGIN * goal.loss, goal.loss)
