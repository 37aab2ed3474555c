"""Shows how many gradients counted in each iteration and how long it was open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import Template
from typing import Final

import numpy as np

from outpace.report.figures.figure import (
    Choice,
    Figure,
    FigureView,
    Plot,
    across,
    axis,
    line,
    rounded,
)
from outpace.report.frame import asset
from outpace.report.read.closed import CutOffs
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import Floats, TraceTotals
from outpace.report.words import label, listed, number, seconds

_SAID: Final = 4  # largest number of runs that the note below the figure names
_ITERATION: Final = "iteration (number)"
_COUNT, _RATE = "Gradients counted", "Gradients per second"
_Known = Sequence[tuple[int, Run, CutOffs]]  # the int is the run's index, for its colour
_Y: Final[dict[str, tuple[str, Callable[[CutOffs], Floats]]]] = {
    _COUNT: ("gradients in an iteration (count)", lambda c: c.gradients / c.iterations),
    "Time open": ("from one closing to the next (s)", lambda c: c.open_s / c.iterations),
    _RATE: ("gradients counted (per s)", lambda c: c.gradients / np.maximum(c.open_s, 1e-9)),
}


def section(figure: Figure | None) -> str:
    """Return the HTML around the figure; nothing without a figure."""
    return (
        Template(asset("figures/cut_offs.html")).substitute(figure=figure.html()) if figure else ""
    )


def cut_offs(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure | None:
    """Return the figure `figure-cut-offs`, or None if no scheduler closed an iteration."""
    known = [
        (place, run, sums.cut_offs)
        for place, (run, sums) in enumerate(zip(runs, totals, strict=True))
        if sums is not None and sums.cut_offs is not None
    ]
    if not known:
        return None
    against = {"vs iteration": _ITERATION, "vs time": f"{clock(runs)} (s)"}
    views = []
    for name, (title, value) in _Y.items():
        for x in against.values():
            layout: Plot = {
                "xaxis": axis(x, hoverformat=".4~g", rangemode="tozero"),
                "yaxis": axis(title, hoverformat=".4~g", rangemode="tozero"),
                "hovermode": "x unified",
            }
            traces = [_line(run, place, closed, x, value) for place, run, closed in known]
            words = _words(known)
            if name == _RATE:
                traces += _others(runs, known, max(trace["x"][-1] for trace in traces))
            elif name == _COUNT:
                layout["shapes"] = [across(count) for count in _workers(known)]
                words += " Dotted: all workers."
            views.append(FigureView(traces, layout, words))
    alt = "Gradients that counted in each iteration, how long it was open, and their rate"
    return Figure(
        "figure-cut-offs",
        alt,
        views,
        [Choice("Quantity", list(_Y)), Choice("Against", list(against))],
    )


def _line(
    run: Run, place: int, closed: CutOffs, x: str, value: Callable[[CutOffs], Floats]
) -> Plot:
    in_time = x != _ITERATION
    numbers = closed.width * np.arange(len(closed.iterations))
    return line(
        label(run.name),
        rounded(closed.ended_s.tolist(), 7) if in_time else numbers.tolist(),
        rounded(value(closed).tolist()),
        place,
        width=1.6,
        shape="vh" if in_time else "hv",
    )


def _others(runs: Sequence[Run], known: _Known, end: float) -> list[Plot]:
    """Draw the mean rate of the runs without cut-offs."""
    if clock(runs) == "time":
        return []
    cut = {place for place, *_ in known}
    rates = {place: run.gradients_per_s for place, run in enumerate(runs) if place not in cut}
    return [
        line(
            f"{label(runs[place].name)}, mean",
            [0, end],
            rounded([rate, rate]),
            place,
            width=1.6,
            dash="dot",
        )
        for place, rate in rates.items()
        if rate
    ]


def _words(known: _Known) -> str:
    named = len(known) > 1
    parts = []
    for _, run, closed in known[:_SAID]:
        iterations = int(closed.iterations.sum())
        count, open_s = closed.gradients.sum() / iterations, closed.open_s.sum() / iterations
        workers = run.setting("workers")
        of = f" of {workers}" if isinstance(workers, int) else ""
        whose = f" with {run.name}" if named else ""
        parts.append(f"{number(count)}{of} gradients in {seconds(open_s)}{whose}")
    words = f"Per iteration, on average: {listed(parts)}."
    width = max(closed.width for *_, closed in known)
    return words if width == 1 else f"{words} Points are means of {width} iterations."


def _workers(known: _Known) -> list[int]:
    counts = (run.setting("workers") for _, run, _ in known)
    return list(dict.fromkeys(count for count in counts if isinstance(count, int)))
