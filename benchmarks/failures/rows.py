"""A line of the tables: the median of some values, what is around it, and the goal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outpace.support.estimates import mean_of


@dataclass(frozen=True)
class Row:
    """A measured quantity.

    Attributes:
        median: of the values; low, high: around it, as `around` says.
        unit: as it is shown; `%` for shares of 1.
        goal: None if there is none; at_least: it is a lower bound, else an upper one.
    """

    what: str
    median: float
    low: float
    high: float
    around: str
    unit: str
    goal: float | None
    at_least: bool
    met: bool


def row(
    what: str,
    values: Sequence[float],
    *,
    unit: str,
    goal: float | None = None,
    at_least: bool = False,
    around: Literal["extremes", "95 %"] = "extremes",
) -> Row:
    """Return the row of these values.

    Args:
        around: the extremes, or the 95 % interval of the mean (Student's t).
    """
    median, low, high = statistics.median(values), min(values), max(values)
    if around == "95 %":
        estimate = mean_of(values)
        low = math.nan if estimate.low is None else estimate.low
        high = math.nan if estimate.high is None else estimate.high
    met = goal is None or (median >= goal if at_least else median <= goal)
    said = f"{around} of {len(values)}"
    return Row(what, median, low, high, said, unit, goal, at_least, met)


def markdown(rows: Sequence[dict[str, object]]) -> list[str]:
    """Return the table of rows as plain data."""
    lines = ["| what | median | around it | goal |", "|---|---|---|---|"]
    for each in rows:
        unit, goal = str(each["unit"]), each["goal"]
        shown = [_shown(each[name], unit) for name in ("median", "low", "high")]
        said = ""
        if goal is not None:
            said = f"{'at least' if each['at_least'] else 'at most'} {_shown(goal, unit)}"
            said += "" if each["met"] else ", **missed**"
        around = f"{shown[1]} to {shown[2]} ({each['around']})"
        lines.append(f"| {each['what']} | {shown[0]} | {around} | {said} |")
    return lines


def _shown(value: object, unit: str) -> str:
    assert isinstance(value, int | float)
    if unit == "%":
        return f"{100 * value:.2f} %"
    return f"{value:.3g} {unit}"
