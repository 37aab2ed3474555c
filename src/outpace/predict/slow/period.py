"""Periods in which a unit was slow, and the pattern that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Pattern: TypeAlias = Literal["steady", "bursts", "once"]
_AT_ONCE: Final = 5  # iterations: a shorter break between two periods is no break


@dataclass(slots=True)
class SlowPeriod:
    """Consecutive iterations in which a unit was slow, compared with the others.

    Args:
        unit: Number of the worker, server or link.
        first: First slow iteration.
        last: Last slow iteration; None: the period lasts until the end.
        named: Iteration after which the test named the unit.
        factor: Run time as a multiple of the others', when the unit was named.
    """

    unit: int
    first: int
    last: int | None
    named: int
    factor: float


def pattern_of(periods: Sequence[SlowPeriod]) -> Pattern:
    """Return the pattern of the slow periods of one unit, of which there is at least one.

    `steady`: one period, which lasts until the end. `once`: one that ended, such as a pause.
    `bursts`: several.
    """
    if len(periods) > 1:
        return "bursts"
    return "steady" if periods[0].last is None else "once"


def merged(periods: Sequence[SlowPeriod]) -> list[SlowPeriod]:
    """Return the periods by unit and begin; those of a unit that touch are made one.

    The factor of the longer one is kept, and the first naming.
    """
    found: list[SlowPeriod] = []
    for period in sorted(periods, key=lambda each: (each.unit, each.first)):
        before = found[-1] if found else None
        if before is None or before.unit != period.unit or _is_apart(before, period):
            found.append(
                SlowPeriod(period.unit, period.first, period.last, period.named, period.factor)
            )
            continue
        if before.last is not None:
            length = before.last - before.first
            if period.last is None or period.last - period.first > length:
                before.factor = period.factor
            before.last = None if period.last is None else max(before.last, period.last)
        before.named = min(before.named, period.named)
    return found


def _is_apart(before: SlowPeriod, period: SlowPeriod) -> bool:
    return before.last is not None and period.first > before.last + _AT_ONCE
