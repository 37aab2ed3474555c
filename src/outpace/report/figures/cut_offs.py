"""Shows how many gradients counted in each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.report.figures.figure import (
    Figure,
    Plot,
    across,
    axis_from_0,
    line,
    rounded,
    view,
)
from outpace.report.read.runs import Run
from outpace.report.read.traces import Totals
from outpace.report.words import label, listed, number, seconds

_POINTS: Final = 1024  # largest number of points per line
_SAID: Final = 4  # largest number of runs that the note below the figure names


def cut_offs(runs: Sequence[Run], totals: Sequence[Totals | None]) -> Figure | None:
    """Return the figure `figure-cut-offs`, or None if no scheduler closed an iteration."""
    closed = {
        place: sums.closed
        for place, sums in enumerate(totals)
        if sums is not None and len(sums.closed["clock"])
    }
    if not closed:
        return None
    means = [
        f"{number(rows['clock'].mean())} gradients in "
        f"{seconds((rows['end_ns'] - rows['start_ns']).mean() * 1e-9)} with {runs[place].name}"
        for place, rows in closed.items()
    ]
    workers = {runs[place].setting("workers") for place in closed}
    layout: Plot = {
        "xaxis": axis_from_0("iteration (number)"),
        "yaxis": axis_from_0("gradients in an iteration (count)"),
        "hovermode": "x unified",
        "shapes": [across(count) for count in workers if isinstance(count, int)],
    }
    traces = []
    for place, rows in closed.items():
        counts = rows["clock"]
        width = -(-len(counts) // _POINTS)  # number of iterations that a point averages
        firsts = np.arange(0, len(counts), width)
        ys = np.add.reduceat(counts, firsts) / np.diff([*firsts, len(counts)])
        name, xs = label(runs[place].name), firsts.tolist()
        traces.append(line(name, xs, rounded(ys), place, width=1.6, shape="hv"))
    note = f"Per iteration, on average: {listed(means[:_SAID])}. Dotted: all workers."
    alt = "Gradients that counted in each iteration"
    return Figure("figure-cut-offs", alt, {(): view(traces, layout, note)})
