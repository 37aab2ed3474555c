"""Shows how many gradients counted in each iteration and how long it was open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from outpace.report.read.runs import Run
from outpace.report.read.traces import Totals
from outpace.report.words import label, listed, number, seconds

_POINTS: Final = 1024  # maximum per line
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
    counts = {place: rows["clock"] for place, rows in closed.items()}
    open_s = {place: (rows["end_ns"] - rows["start_ns"]) * 1e-9 for place, rows in closed.items()}
    means = [
        f"{number(counts[place].mean())} gradients in {seconds(open_s[place].mean())} with "
        f"{runs[place].name}"
        for place in closed
    ]
    note = f"Per iteration, on average: {listed(means[:_SAID])}."
    workers = {runs[place].setting("workers") for place in closed}
    views: Views = {}
    for name, title, values in (
        ("Gradients counted", "gradients in an iteration (count)", counts),
        ("Time open", "from one closing to the next (s)", open_s),
    ):
        layout: Plot = {
            "xaxis": axis_from_0("iteration (number)"),
            "yaxis": axis_from_0(title),
            "hovermode": "x unified",
        }
        words = note
        if values is counts:
            layout["shapes"] = [across(count) for count in workers if isinstance(count, int)]
            words += " Dotted: all workers."
        traces = []
        for place, each in values.items():
            width = -(-len(each) // _POINTS)  # iterations of which a point is the mean
            firsts = np.arange(0, len(each), width)
            ys = np.add.reduceat(each, firsts) / np.diff([*firsts, len(each)])
            name_of_run, xs = label(runs[place].name), firsts.tolist()
            traces.append(line(name_of_run, xs, rounded(ys), place, width=1.6, shape="hv"))
        views[name,] = view(traces, layout, words)
    alt = "Gradients that counted in each iteration, and how long it was open"
    return Figure("figure-cut-offs", alt, views, ["Quantity"])
