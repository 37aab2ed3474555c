"""Shows accuracy and losses against time, updates and gradients, or the finished iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from outpace.report.figures.figure import (
    NO_TRACE,
    Figure,
    Plot,
    Views,
    across,
    axis,
    axis_from_0,
    colour,
    dots,
    down,
    faint,
    line,
    rounded,
    thinned,
    view,
)
from outpace.report.read.interruptions import interruptions
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import STEPS, TraceTotals
from outpace.report.read.variants import counted
from outpace.report.target import ReportTarget
from outpace.report.words import escaped, label

_POINTS: Final = 1000  # per line
_MARKS: Final = 100  # interruptions that are marked
_BAND_POINTS: Final = 300  # per mean over seeds
_GREY: Final = "rgba(138,143,152,0.35)"
_BAND_NOTE: Final = (
    "Lines are means over the seeds. A run that has ended counts with its last value."
)
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
    """Return the figure `figure-progress`.

    Over several seeds, each variant has a line for the mean and a band around it.
    """
    views: Views = {}
    for y, (quantity, title) in _Y.items():
        if not any(len(_points(each, "time_s", y)) > 1 for run in runs for each in counted(run)):
            continue
        judged = target if target is not None and y == target.column else None
        for x, (against, x_title, note) in _X.items():
            layout: Plot = {
                "xaxis": axis_from_0(x_title.format(clock=clock(runs))),
                "yaxis": axis(title, hoverformat=".4~g"),
                "hovermode": "x unified",
            }
            if y == "accuracy":
                layout["yaxis"] |= {"tickformat": ".3~p", "hoverformat": ".1%"}
            if judged is not None:
                layout["shapes"] = [across(judged.value)]
                origin = "the target" if judged.given else "derived from the results"
                note += f" Dotted: {judged.words}, {origin}."
            lost = interruptions(runs[0]) if x == "time_s" and len(runs) == 1 else []
            if lost:
                marks = [down(each.at_s) for each in lost[:_MARKS]]
                layout["shapes"] = [*layout.get("shapes", []), *marks]
                note += " Dashed: the run was interrupted."
            if runs[0].seeds:
                note += f" {_BAND_NOTE}"
            traces, arrows = [], []
            for place, run in enumerate(runs):
                drawn = _band(run, place, x, y) if run.seeds else _line(run, place, x, y)
                if len(runs) == 1 and run.logs:
                    drawn = _logs(run, x, y)
                    note += " Each worker has logged; the target is judged by the first of them."
                traces += drawn
                if drawn and judged is not None and judged.reached_s(run) is None:
                    arrows.append(_arrow(run, place, drawn[-1]))
            traces += arrows
            if arrows:
                note += " Arrow: ended without it."
            if runs[0].seeds:  # only an entry of the legend
                key = _area("band: lowest to highest seed", [None], [None], _GREY)
                traces.append(key.update(showlegend=True))
            views[quantity, against] = view(traces, layout, note)
    if not views:
        return _iterations([counted(run)[0] for run in runs], totals)
    alt = "Progress of the training"
    return Figure("figure-progress", alt, views, ["Quantity", "Against"], height=420)


def _line(run: Run, place: int, x: str, y: str) -> list[go.Scatter]:
    """Return the line of a run, if any, with a gap where another worker's values begin."""
    known = zip(run.metrics[x], run.metrics[y], run.metrics["worker"], strict=True)
    points = [(a, b, worker) for a, b, worker in known if a is not None and b is not None]
    points = [points[index] for index in thinned(len(points), _POINTS)]
    xs: list[float] = []
    ys: list[float | None] = []
    for index, (a, b, worker) in enumerate(points):
        if index and worker != points[index - 1][2]:
            xs.append(a)
            ys.append(None)
        xs.append(a)
        ys.append(b)
    return [_drawn(run, place, xs, ys)] if points else []


def _logs(run: Run, x: str, y: str) -> list[go.Scatter]:
    """Return a line for each worker that has logged; the last one is that of the first worker."""
    drawn = []
    for place, (worker, log) in enumerate(run.logs.items()):
        known = zip(log[x], log[y], strict=True)
        points = [(a, b) for a, b in known if a is not None and b is not None]
        points = [points[index] for index in thinned(len(points), _POINTS)]
        if points:
            xs, ys = zip(*points, strict=True)
            drawn.append(line(f"worker {worker}", rounded(xs, 7), rounded(ys), place))
    return drawn[::-1]


def _arrow(run: Run, place: int, ended: go.Scatter) -> go.Scatter:
    """Return an arrow at the end of the line of a run that missed the target."""
    hover = [f"{escaped(run.name)} ended without reaching the target"]
    look = {"symbol": "arrow-right", "size": 14, "color": colour(place)}
    arrow = dots("", [ended.x[-1]], [ended.y[-1]], hover, **look)
    return arrow.update(showlegend=False)


def _points(run: Run, x: str, y: str) -> list[tuple[float, float]]:
    pairs = zip(run.metrics[x], run.metrics[y], strict=True)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _drawn(run: Run, place: int, x: Sequence[float], y: Sequence[float | None]) -> go.Scatter:
    drawn = line(label(run.name), rounded(x, 7), rounded(y), place, width=2.2)
    return drawn.update(mode="lines+markers", marker_size=5) if len(x) <= 40 else drawn


def _area(name: str, x: Sequence[Any], y: Sequence[Any], fill: str) -> go.Scatter:
    """Return an area within a line that is not seen, which has no entry in the legend."""
    area = line(name, x, y, width=0)
    return area.update(fill="toself", fillcolor=fill, hoverinfo="skip", showlegend=False)


def _band(run: Run, place: int, x: str, y: str) -> list[go.Scatter]:
    """Return the band from the lowest to the highest seed, and the line of the mean."""
    curves = [points for each in counted(run) if (points := _points(each, x, y))]
    if not curves:
        return []
    first = max(points[0][0] for points in curves)
    places = sorted({a for points in curves for a, _ in points if a >= first})
    grid = np.array([places[index] for index in thinned(len(places), _BAND_POINTS)])
    values = np.array(
        [np.interp(grid, [a for a, _ in points], [b for _, b in points]) for points in curves]
    )
    along = rounded([*grid, *grid[::-1]], 7)
    edge = rounded([*values.max(axis=0), *values.min(axis=0)[::-1]])
    mean = _drawn(run, place, grid.tolist(), values.mean(axis=0).tolist())
    band = _area("", along, edge, faint(place))
    return [band.update(legendgroup=run.name), mean.update(legendgroup=run.name)]


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
        if any(run.setting("task", "kind") == "script" for run in runs):
            note += " Loss and accuracy were logged only once: call outpace.log more often."
        else:
            note += (
                " Accuracy and loss were evaluated only once: set evaluate.every_s to follow them."
            )
    views: Views = {(): view(traces, layout, note)} if traces else {}
    alt = "Iterations finished against time"
    return Figure("figure-progress", alt, views, instead=NO_TRACE)
