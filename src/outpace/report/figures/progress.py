"""Shows accuracy and losses against time, updates and gradients, or the finished iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.report.figures.figure import (
    NO_TRACE,
    Figure,
    FigureView,
    Plot,
    Views,
    across,
    axis,
    axis_from_0,
    line,
    rounded,
    thinned,
)
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import STEPS, TraceTotals
from outpace.report.target import ReportTarget
from outpace.report.words import label

_POINTS: Final = 1000  # per line
_Y: Final = {
    "accuracy": ("Accuracy", "test accuracy (%)"),
    "train_loss": ("Training loss", "training loss"),
    "test_loss": ("Test loss", "test loss"),
}
_X: Final = {
    "time_s": ("vs time", "{clock} (s)", "The time that a user waits for the result."),
    "updates": (
        "vs updates",
        "updates of the parameters (count)",
        "Under BSP an update is one iteration of all workers, under SSP and ASP a single "
        "gradient: compare by gradients or by time.",
    ),
    "gradients": (
        "vs gradients",
        "gradients applied (count)",
        "A gradient is made of one mini-batch: with equal batch sizes, equally many gradients "
        "mean equally many samples.",
    ),
}


def progress(
    runs: Sequence[Run], totals: Sequence[TraceTotals | None], target: ReportTarget | None
) -> Figure:
    """Return the figure `figure-progress`."""
    views: Views = {}
    for y, (quantity, title) in _Y.items():
        if not any(sum(value is not None for value in run.metrics[y]) > 1 for run in runs):
            continue
        for x, (against, x_title, note) in _X.items():
            layout: Plot = {
                "xaxis": axis_from_0(x_title.format(clock=clock(runs))),
                "yaxis": axis(title, hoverformat=".4~g"),
                "hovermode": "x unified",
            }
            if y == "accuracy":
                layout["yaxis"] |= {"tickformat": ".0%", "hoverformat": ".1%"}
            if target is not None and y == target.column:
                layout["shapes"] = [across(target.value)]
                origin = "the target" if target.given else "derived from the results"
                note += f" Dotted: {target.words}, {origin}."
            traces = [_line(run, place, x, y) for place, run in enumerate(runs)]
            traces = [trace for trace in traces if trace["x"]]
            views[quantity, against] = FigureView(traces, layout, note)
    if not views:
        return _iterations(runs, totals)
    alt = "Progress of the training"
    return Figure("figure-progress", alt, views, ["Quantity", "Against"], height=420)


def _line(run: Run, place: int, x: str, y: str) -> Plot:
    pairs = zip(run.metrics[x], run.metrics[y], strict=True)
    points = [(a, b) for a, b in pairs if a is not None and b is not None]
    points = [points[index] for index in thinned(len(points), _POINTS)]
    x_values, y_values = ([point[part] for point in points] for part in (0, 1))
    drawn = line(label(run.name), rounded(x_values, 7), rounded(y_values), place, width=2.2)
    mode = "lines+markers" if len(points) <= 40 else "lines"
    return {**drawn, "mode": mode, "marker": {"size": 5}}


def _iterations(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure:
    """Show the finished iterations over time, for runs evaluated once or never."""
    traces = []
    for place, (run, sums) in enumerate(zip(runs, totals, strict=True)):
        if sums is None or not run.time_s:
            continue
        times, finished = np.arange(1, STEPS + 1) * (run.time_s / STEPS), sums.finished
        if sums.cut_offs:
            times, finished = sums.cut_offs.ended_s, sums.cut_offs.gradients
        x = [0, *rounded(times, 6)]
        traces.append(line(label(run.name), x, [0, *finished.cumsum().tolist()], place, width=2.2))
    layout = {
        "xaxis": axis_from_0(f"{clock(runs)} (s)"),
        "yaxis": axis_from_0("iterations finished, all workers (count)"),
        "hovermode": "x unified",
    }
    note = "The steeper, the more iterations per second."
    if any(sums is not None and sums.cut_offs for sums in totals):
        note += " Iterations of workers that were cut off do not count."
    if any(value is not None for run in runs for value in run.metrics["train_loss"]):
        note += " Accuracy and loss were evaluated only once: set evaluate.every_s to follow them."
    views: Views = {(): FigureView(traces, layout, note)} if traces else {}
    alt = "Iterations finished against time"
    return Figure("figure-progress", alt, views, instead=NO_TRACE)
