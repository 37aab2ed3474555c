"""Rows of the benchmarks: the median of some values, an interval around it, and the goal.

Programs that are compared take turns, A B A B, because a shared machine slows down for seconds at
a time. Both halves of a pair run on nearly the same machine, so the ratio of a pair is steadier
than either time.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outpace.support.estimates import mean_of


@dataclass(frozen=True)
class Row:
    """A measured quantity.

    Attributes:
        median: median of the values; low, high: interval around it, see `row`.
        unit: the unit that is shown; `%` for shares of 1.
        goal: None: no goal; at_least: True if the goal is a lower bound, False if it is an upper
            one.
        met: True if the goal is met or there is no goal.
        note: further text, such as both times of a ratio.
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
    note: str = ""


def row(
    what: str,
    values: Sequence[float],
    *,
    unit: str,
    goal: float | None = None,
    at_least: bool = False,
    around: Literal["extremes", "95 %"] = "extremes",
    note: str = "",
) -> Row:
    """Return the row of these values.

    Args:
        around: the interval: the extremes, or the 95 % interval of the mean (Student's t).
    """
    median, low, high = statistics.median(values), min(values), max(values)
    if around == "95 %":
        estimate = mean_of(values)
        low = math.nan if estimate.low is None else estimate.low
        high = math.nan if estimate.high is None else estimate.high
    met = goal is None or (median >= goal if at_least else median <= goal)
    said = f"{around} of {len(values)}"
    return Row(what, median, low, high, said, unit, goal, at_least, met, note)


def ratio(
    what: str,
    above: Sequence[float],
    below: Sequence[float],
    *,
    goal: float | None = None,
    at_least: bool = False,
    note: Callable[[float, float], str] | None = None,
) -> Row:
    """Return the ratio above/below of numbers taken in turn; `note` describes both medians."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    words = note(statistics.median(above), statistics.median(below)) if note else ""
    return row(what, ratios, unit="x", goal=goal, at_least=at_least, note=words)


def times_note(above: float, below: float) -> str:
    """Return both times of a ratio, given in seconds, in a unit that suits the smaller one."""
    units = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "µs", 1e6))
    unit, factor = next((name, by) for least, name, by in units if min(above, below) >= least)
    return f"{above * factor:.1f} and {below * factor:.1f} {unit}"


def host_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of `work`, after a collection of the garbage of earlier work."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(programs: Sequence[Callable[[], float]], repetitions: int) -> list[list[float]]:
    """Call the programs in A B C A B C ... order; return the numbers of each."""
    rounds = [[program() for program in programs] for _ in range(repetitions)]
    return [list(column) for column in zip(*rounds, strict=True)]


def markdown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of rows as plain data."""
    cells = []
    for each in rows:
        unit, goal = each["unit"], each["goal"]
        median, low, high = (_shown(each[name], unit) for name in ("median", "low", "high"))
        said = ""
        if goal is not None:
            said = f"{'at least' if each['at_least'] else 'at most'} {_shown(goal, unit)}"
            said += "" if each["met"] else ", **missed**"
        note = f" ({each['note']})" if each.get("note") else ""
        around = f"{low} to {high} ({each['around']})"
        cells.append([each["what"], f"{median}{note}", around, said])
    return table(["what", "median", "around it", "goal"], cells)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (columns, *rows))
    return [head, f"|{'---|' * len(columns)}", *lines]


def _shown(value: float, unit: str) -> str:
    return f"{100 * value:.2f} %" if unit == "%" else f"{value:.3g} {unit}"
