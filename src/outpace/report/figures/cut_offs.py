"""Shows how many gradients counted in each iteration and how long it was open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from outpace.report.figures.figure import (
    Figure,
    Plot,
    Views,
    across,
    axis_from_0,
    line,
    rounded,
    view,
)
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import CutOffs, Floats, TraceTotals
from outpace.report.words import label, listed, number, seconds

_SAID: Final = 4  # largest number of runs that the note below the figure names
_COUNT, _RATE = "Gradients counted", "Gradients per second"
_Known = dict[int, tuple[Run, CutOffs]]  # the key is the run's index, for its colour
_Y: Final[dict[str, tuple[str, Callable[[CutOffs], Floats]]]] = {
    _COUNT: ("gradients in an iteration (count)", lambda c: c.gradients / c.iterations),
    "Time open": ("from one closing to the next (s)", lambda c: c.open_s / c.iterations),
    _RATE: ("gradients counted (per s)", lambda c: c.gradients / np.maximum(c.open_s, 1e-9)),
}


def cut_offs(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure | None:
    """Return the figure `figure-cut-offs`, or None if no scheduler closed an iteration."""
    known = {
        place: (run, sums.cut_offs)
        for place, (run, sums) in enumerate(zip(runs, totals, strict=True))
        if sums is not None and sums.cut_offs is not None
    }
    if not known:
        return None
    workers = dict.fromkeys(run.setting("workers") for run, _ in known.values())
    views: Views = {}
    for name, (title, value) in _Y.items():
        for against, x in (("iteration", "iteration (number)"), ("time", f"{clock(runs)} (s)")):
            layout: Plot = {
                "xaxis": axis_from_0(x),
                "yaxis": axis_from_0(title),
                "hovermode": "x unified",
            }
            traces = []
            for place, (run, closed) in known.items():
                xs, shape = rounded(closed.ended_s, 7), "vh"
                if against == "iteration":
                    xs, shape = [closed.width * n for n in range(len(xs))], "hv"
                y = rounded(value(closed))
                traces.append(line(label(run.name), xs, y, place, width=1.6, shape=shape))
            words = _words(known)
            if name == _RATE:
                traces += _others(runs, known, max(trace.x[-1] for trace in traces))
            elif name == _COUNT:
                layout["shapes"] = [across(count) for count in workers if isinstance(count, int)]
                words += " Dotted: all workers."
            views[name, f"vs {against}"] = view(traces, layout, words)
    alt = "Gradients that counted in each iteration, how long it was open, and their rate"
    return Figure("figure-cut-offs", alt, views, ["Quantity", "Against"])


def _others(runs: Sequence[Run], known: _Known, end: float) -> list[Any]:
    """Draw the mean rate of the runs without cut-offs."""
    if clock(runs) == "time":
        return []
    return [
        line(
            f"{label(run.name)}, mean",
            [0, end],
            rounded([run.gradients_per_s] * 2),
            place,
            width=1.6,
            dash="dot",
        )
        for place, run in enumerate(runs)
        if place not in known and run.gradients_per_s
    ]


def _words(known: _Known) -> str:
    parts = []
    for run, closed in list(known.values())[:_SAID]:
        iterations = closed.iterations.sum()
        count, open_s = closed.gradients.sum() / iterations, closed.open_s.sum() / iterations
        workers = run.setting("workers")
        of = f" of {workers}" if isinstance(workers, int) else ""
        whose = f" with {run.name}" if len(known) > 1 else ""
        parts.append(f"{number(count)}{of} gradients in {seconds(open_s)}{whose}")
    words = f"Per iteration, on average: {listed(parts)}."
    width = max(closed.width for _, closed in known.values())
    return words if width == 1 else f"{words} Points are means of {width} iterations."
