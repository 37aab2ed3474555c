"""The goals: how far predictions may be off."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from benchmarks.fidelity.measuring import CALIBRATED
from benchmarks.fidelity.outcome import COUNTS, FEW, LOSS, TOTAL, Outcome

MEAN: Final = 0.03  # of the total time
WORST: Final = {"a": 0.05, "b": 0.08, "c": 0.08}
TO_LOSS: Final = 0.08
COUNTED: Final = 0.10
COVERED: Final = (0.80, 0.98)
OUTCOMES: Final = 60  # smallest number of outcomes whose share of covered ones is judged
HALF_WIDTH: Final = 0.06
TIED: Final = 0.03  # strategies whose times differ by less are not ordered


@dataclass(frozen=True)
class Goal:
    """A goal and the measured value. met: None if too little was measured to judge."""

    what: str
    found: str
    goal: str
    met: bool | None


def judge(outcomes: Sequence[Outcome]) -> list[Goal]:
    """Judge the predictions of one setup: calibrated ones, and ones with the law's own draws."""
    calibrated = [each for each in outcomes if each.cluster == CALIBRATED]
    if not calibrated:
        return []
    paired = [each for each in calibrated if each.law != CALIBRATED]
    mean = paired or calibrated
    part = mean[0].part
    found = [
        _errors(mean, TOTAL, WORST[part], f"total time, {mean[0].law}"),
        _mean(mean),
        _errors(mean, LOSS, TO_LOSS, "time to the training loss"),
    ]
    found += [_errors(_many(mean, name), name, COUNTED, name) for name in COUNTS]
    if with_ends := [each for each in calibrated if each.low]:
        found += _intervals(with_ends)
    found.append(_order(mean))
    return [each for each in found if each is not None]


def _many(outcomes: Sequence[Outcome], name: str) -> list[Outcome]:
    """Return the outcomes that count enough; staleness is counted once for each gradient."""
    return [each for each in outcomes if name == "staleness" or (each.real.get(name) or 0) >= FEW]


def _errors(outcomes: Sequence[Outcome], quantity: str, limit: float, what: str) -> Goal | None:
    errors = {
        f"{each.strategy}, seed {each.seed}": error
        for each in outcomes
        if (error := each.error(quantity)) is not None
    }
    if not errors:
        return None
    worst = max(errors, key=lambda name: abs(errors[name]))
    return Goal(
        f"{what}, at worst",
        f"{errors[worst]:+.1%} ({worst}) of {len(errors)}",
        f"{limit:.0%}",
        abs(errors[worst]) <= limit,
    )


def _mean(outcomes: Sequence[Outcome]) -> Goal | None:
    errors = [abs(error) for each in outcomes if (error := each.error(TOTAL)) is not None]
    mean = statistics.fmean(errors)
    return Goal("total time, mean of the errors", f"{mean:.1%}", f"{MEAN:.0%}", mean <= MEAN)


def _intervals(outcomes: Sequence[Outcome]) -> list[Goal]:
    names = (TOTAL, LOSS)
    covered = [found for each in outcomes for n in names if (found := each.covers(n)) is not None]
    widths = [width for each in outcomes for n in names if (width := each.half_width(n))]
    if not covered:
        return []
    share, low, high = statistics.fmean(covered), *COVERED
    enough = len(covered) >= OUTCOMES
    middle = statistics.median(widths) if widths else 0.0
    return [
        Goal(
            "90 % intervals that contain the outcome",
            f"{share:.0%} of {len(covered)}",
            f"{low:.0%} to {high:.0%} of at least {OUTCOMES}",
            low <= share <= high if enough else None,
        ),
        Goal(
            "half-width of the intervals, median",
            f"{middle:.1%}",
            f"{HALF_WIDTH:.0%}",
            middle <= HALF_WIDTH,
        ),
    ]


def _order(outcomes: Sequence[Outcome]) -> Goal | None:
    """Judge the order of the strategies by their mean times."""
    names = list(dict.fromkeys(each.strategy for each in outcomes))
    real, predicted = (
        {
            name: statistics.fmean(
                getattr(each, which)[TOTAL] for each in outcomes if each.strategy == name
            )
            for name in names
        }
        for which in ("real", "predicted")
    )
    apart = [
        (one, other)
        for one, other in combinations(names, 2)
        if abs(predicted[one] / predicted[other] - 1) > TIED
    ]
    wrong = [
        f"{one} and {other}"
        for one, other in apart
        if (predicted[one] < predicted[other]) != (real[one] < real[other])
    ]
    if not apart:
        return None
    return Goal(
        f"order by time, of pairs more than {TIED:.0%} apart",
        f"{len(apart) - len(wrong)} of {len(apart)} right"
        + (f"; wrong: {wrong[0]}" if wrong else ""),
        "all right",
        not wrong,
    )
