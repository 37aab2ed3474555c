"""Shows accuracy and losses against time and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import pyarrow.compute as pc

from outpace.report.figures.figure import (
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
from outpace.report.read.runs import Floats, Run, clock, known_points
from outpace.report.read.traces import interruptions
from outpace.report.target import ReportTarget
from outpace.report.words import escaped, label

_POINTS: Final = 1000  # points per line
_BAND_POINTS: Final = 300  # points per mean over seeds
_MARKS: Final = 100  # number of interruptions that are marked
_NO_CURVE: Final = (
    "Accuracy and loss were evaluated at most once: set evaluate.every_s, or call outpace.log in "
    "the script, to follow them."
)
_Y: Final = {
    "accuracy": ("Accuracy", "test accuracy (%)"),
    "train_loss": ("Training loss", "training loss"),
    "test_loss": ("Test loss", "test loss"),
}
_X: Final = {
    "time_s": ("vs time", "The time that a user waits for the result."),
    "gradients": (
        "vs gradients",
        "A gradient is made of one mini-batch: with equal batch sizes, equally many gradients "
        "mean equally many samples.",
    ),
}


def progress(runs: Sequence[Run], target: ReportTarget | None) -> Figure:
    """Return the figure `figure-progress`.

    Over several seeds, each variant has a line for the mean and a band around it.
    """
    views: Views = {}
    draw: Callable[[Run, int, str, str], list[go.Scatter]] = _drawn
    words = ""
    if runs[0].seeds:
        draw, words = (
            _band,
            " Lines are means over seeds, bands reach from the lowest to the highest.",
        )
    elif len(runs) == 1 and runs[0].logs:
        draw, words = _logs, " Each worker has logged; the target is judged by the first of them."
    for y, (quantity, title) in _Y.items():
        if not any(len(each.points("time_s", y)[0]) > 1 for run in runs for each in run.counted()):
            continue
        for x, (against, note) in _X.items():
            x_title = f"{clock(runs)} (s)" if x == "time_s" else "gradients applied (count)"
            layout: Plot = {
                "xaxis": axis_from_0(x_title),
                "yaxis": axis(title, hoverformat=".4~g"),
                "hovermode": "x unified",
                "shapes": [],
            }
            if y == "accuracy":
                layout["yaxis"] |= {"tickformat": ".3~p", "hoverformat": ".1%"}
            judged = target if target is not None and y == target.column else None
            if judged is not None:
                layout["shapes"].append(across(judged.value))
                origin = "the target" if judged.given else "derived from the results"
                note += f" Dotted: {judged.words}, {origin}."
            traces, arrows = [], []
            for place, run in enumerate(runs):
                traces += (drawn := draw(run, place, x, y))
                if drawn and judged is not None and judged.reached_s(run) is None:
                    arrows.append(_arrow(run, place, drawn[-1]))
            if x == "time_s" and len(runs) == 1 and (lost := interruptions(runs[0])):
                layout["shapes"] += [down(each.at_s) for each in lost[:_MARKS]]
                note += " Dashed: the run was interrupted."
            note += " Arrow: ended without the target." * bool(arrows) + words
            views[quantity, against] = view([*traces, *arrows], layout, note)
    alt, choices = "Progress of the training", ["Quantity", "Against"]
    return Figure("figure-progress", alt, views, choices, height=420, instead=_NO_CURVE)


def _drawn(run: Run, place: int, x: str, y: str) -> list[go.Scatter]:
    """Return the line of a run, with a gap where another worker's values begin."""
    rows = run.metrics.filter(pc.field(x).is_valid() & pc.field(y).is_valid())
    if not len(rows):
        return []
    xs, ys, workers = (_thin(rows[name].fill_null(-1)) for name in (x, y, "worker"))
    begins = np.flatnonzero(np.diff(workers)) + 1
    with_gaps = np.insert(ys, begins, np.nan)
    return [_line(label(run.name), place, np.insert(xs, begins, xs[begins]), with_gaps)]


def _logs(run: Run, _: int, x: str, y: str) -> list[go.Scatter]:
    """Return a line for each worker that has logged, in descending order of workers."""
    found = [(worker, known_points(log, x, y)) for worker, log in run.logs.items()]
    return [
        _line(f"worker {worker}", place, _thin(xs), _thin(ys))
        for place, (worker, (xs, ys)) in enumerate(found)
        if len(xs)
    ][::-1]


def _band(run: Run, place: int, x: str, y: str) -> list[go.Scatter]:
    """Return the band from the lowest to the highest seed, and the line of the mean."""
    curves = [points for each in run.counted() if len((points := each.points(x, y))[0])]
    if not curves:
        return []
    places = np.unique(np.concatenate([xs for xs, _ in curves]))
    grid = _thin(places[places >= max(xs[0] for xs, _ in curves)], _BAND_POINTS)
    values = np.array([np.interp(grid, *points) for points in curves])
    mean = _line(label(run.name), place, grid, values.mean(axis=0))
    edge = rounded([*values.max(axis=0), *values.min(axis=0)[::-1]])
    band = line("", rounded([*grid, *grid[::-1]], 7), edge, place, width=0)
    band.update(fill="toself", fillcolor=faint(place), hoverinfo="skip", showlegend=False)
    return [each.update(legendgroup=run.name) for each in (band, mean)]


def _line(name: str, place: int, xs: Floats, ys: Floats) -> go.Scatter:
    drawn = line(name, rounded(xs, 7), rounded(ys), place, width=2.2)
    return drawn.update(mode="lines+markers", marker_size=5) if len(xs) <= 40 else drawn


def _thin(values: Any, most: int = _POINTS) -> Floats:
    found: Floats = np.asarray(values)[thinned(len(values), most)]
    return found


def _arrow(run: Run, place: int, ended: go.Scatter) -> go.Scatter:
    """Return an arrow at the end of the line of a run that missed the target."""
    hover = [f"{escaped(run.name)} ended without reaching the target"]
    look = {"symbol": "arrow-right", "size": 14, "color": colour(place)}
    return dots("", [ended.x[-1]], [ended.y[-1]], hover, **look).update(showlegend=False)
