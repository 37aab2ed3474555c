"""Ratios of two programs with the same result, measured in turn: A B A B ...

A shared machine slows down for seconds at a time. Both halves of a pair run on nearly the same
machine, so the ratio of a pair is steadier than either time. The median of several pairs is
reported with their extremes.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Measurement:
    """A line of the table. goal: None if the number is only for information."""

    name: str
    median: float
    low: float
    high: float
    goal: float | None = None
    at_least: bool = True  # the goal is a lower bound, else an upper one
    unit: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """True if the goal is met, None without a goal."""
        if self.goal is None:
            return None
        return self.median >= self.goal if self.at_least else self.median <= self.goal


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


def ratio(
    name: str,
    above: list[float],
    below: list[float],
    *,
    goal: float | None = None,
    at_least: bool = True,
    note: Callable[[float, float], str] | None = None,
) -> Measurement:
    """Return the ratio above/below of numbers taken in turn; `note` describes both medians."""
    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    words = note(statistics.median(above), statistics.median(below)) if note else ""
    return Measurement(
        name, statistics.median(ratios), ratios[0], ratios[-1], goal, at_least, note=words
    )


def value(
    name: str, values: list[float], *, unit: str, goal: float | None = None, note: str = ""
) -> Measurement:
    """Return the median of `values`, which must be at most `goal`."""
    ordered = sorted(values)
    return Measurement(
        name, statistics.median(ordered), ordered[0], ordered[-1], goal, False, unit, note
    )


def write(measurements: list[Measurement], path: Path) -> None:
    """Write name, median, low, high, goal and met (null without a goal) of each, as JSON."""
    keys = "name", "median", "low", "high", "goal", "met"
    rows = [{key: getattr(m, key) for key in keys} for m in measurements]
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


def show(measurements: list[Measurement]) -> None:
    table = Table("measured", "median", "extremes", "goal", "", "", title_justify="left")
    for m in measurements:
        goal = "" if m.goal is None else f"{'≥' if m.at_least else '≤'} {m.goal:g}"
        verdict = {None: "", True: "met", False: "[red]missed[/red]"}[m.met]
        table.add_row(
            m.name,
            f"{m.median:.2f} {m.unit}",
            f"{m.low:.2f} to {m.high:.2f}",
            goal,
            verdict,
            m.note,
        )
    Console(width=150).print(table)
