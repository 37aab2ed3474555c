"""Shows accuracy and losses against time, updates and gradients, or the finished iterations."""

from __future__ import annotations

from collections.abc import Sequence
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
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import STEPS, TraceTotals
from outpace.report.target import ReportTarget
from outpace.report.words import label, listed

_POINTS: Final = 1000  # per line
_Y: Final = {
    "accuracy": ("Accuracy", "test accuracy (%)"),
    "train_loss": ("Training loss", "training loss"),
    "test_loss": ("Test loss", "test loss"),
}
_X: Final = {
    "time_s": ("Time", ""),  # the clock's name and (s)
    "updates": ("Updates", "updates of the parameters (count)"),
    "gradients": ("Gradients", "gradients applied (count)"),
}
_NOTES: Final = {
    "time_s": "The time that a user waits for the result.",
    "updates": "Under BSP an update is one iteration of all workers, under SSP and ASP a single "
    "gradient: compare by gradients or by time.",
    "gradients": "A gradient is made of one mini-batch: with equal batch sizes, equally many "
    "gradients mean equally many samples.",
}


def progress(
    runs: Sequence[Run], totals: Sequence[TraceTotals | None], target: ReportTarget | None
) -> Figure:
    """Return the figure `figure-progress`."""
    ys = [y for y in _Y if any(sum(v is not None for v in r.metrics[y]) > 1 for r in runs)]
    if not ys:
        return _iterations(runs, totals)
    views = []
    for y in ys:
        for x in _X:
            layout: Plot = {
                "xaxis": axis(
                    _X[x][1] or f"{clock(runs)} (s)", hoverformat=".4~g", rangemode="tozero"
                ),
                "yaxis": axis(_Y[y][1], hoverformat=".4~g"),
                "hovermode": "x unified",
            }
            note = _NOTES[x]
            if y == "accuracy":
                layout["yaxis"] |= {"tickformat": ".0%", "hoverformat": ".1%"}
            if target is not None and y == target.column:
                layout["shapes"] = [across(target.value)]
                note += f" {_who_reached(runs, target)}"
            traces = [_line(run, place, x, y) for place, run in enumerate(runs)]
            views.append(FigureView([trace for trace in traces if trace["x"]], layout, note))
    choices = [
        Choice("Quantity", [_Y[y][0] for y in ys]),
        Choice("Against", [f"vs {_X[x][0].lower()}" for x in _X]),
    ]
    return Figure("figure-progress", "Progress of the training", views, choices, height=420)


def _line(run: Run, place: int, x: str, y: str) -> Plot:
    points = [
        (a, b)
        for a, b in zip(run.metrics[x], run.metrics[y], strict=True)
        if a is not None and b is not None
    ]
    if len(points) > _POINTS:
        kept = np.linspace(0, len(points) - 1, _POINTS).round().astype(int)
        points = [points[index] for index in kept]
    x_values, y_values = ([point[part] for point in points] for part in (0, 1))
    drawn = line(label(run.name), rounded(x_values, 7), rounded(y_values), place, width=2.2)
    mode = "lines+markers" if len(points) <= 40 else "lines"
    return {**drawn, "mode": mode, "marker": {"size": 5}}


def _who_reached(runs: Sequence[Run], target: ReportTarget) -> str:
    origin = "the target" if target.given else "derived from the results"
    evaluated = [run for run in runs if target.applies_to(run)]
    missed = [run.name for run in evaluated if target.reached_s(run) is None]
    if not missed:
        who = "All runs" if len(evaluated) == len(runs) else "All runs that were evaluated"
        return f"Dotted: {target.words}, {origin}. {who} reached it."
    return f"Dotted: {target.words}, {origin}. {listed(missed)} did not reach it."


def _iterations(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure:
    """Show the finished iterations over time, for runs evaluated once or never."""
    traces = []
    for place, (run, sums) in enumerate(zip(runs, totals, strict=True)):
        time_s = run.time_s
        if sums is None or not time_s:
            continue
        times, finished = np.arange(1, STEPS + 1) * (time_s / STEPS), sums.finished
        if sums.cut_offs:
            times, finished = sums.cut_offs.ended_s, sums.cut_offs.gradients
        x = [0, *rounded(times.tolist(), 6)]
        traces.append(line(label(run.name), x, [0, *finished.cumsum().tolist()], place, width=2.2))
    layout = {
        "xaxis": axis(f"{clock(runs)} (s)", hoverformat=".4~g", rangemode="tozero"),
        "yaxis": axis("iterations finished, all workers (count)", rangemode="tozero"),
        "hovermode": "x unified",
    }
    note = "The steeper, the more iterations per second."
    if any(sums is not None and sums.cut_offs for sums in totals):
        note += " Iterations of workers that were cut off do not count."
    if any(run.metrics["train_loss"] != [None] * len(run.metrics["time_s"]) for run in runs):
        note += " Accuracy and loss were evaluated only once: set evaluate.every_s to follow them."
    views = [FigureView(traces, layout, note)] if traces else []
    return Figure(
        "figure-progress",
        "Iterations finished against time",
        views,
        instead="There is no readable trace with a finished iteration.",
    )
