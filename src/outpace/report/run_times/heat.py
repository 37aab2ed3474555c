"""Shows run times in colours, by worker and iteration."""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from outpace.predict.recorded.statistics import fast
from outpace.predict.recorded.table import RunTimes, Seconds
from outpace.report.figures.figure import Figure, FigureView, Plot, Views, across, axis, view
from outpace.report.words import plural

_ROWS: Final = 240
_COLUMNS: Final = 400
_LINES: Final = 20  # maximum number of lines between nodes
_CUT: Final = "#e4572e"
_WHITE: Final = {"line": {"width": 1, "color": "#ffffff"}, "opacity": 0.55, "layer": "above"}


def heat(times: RunTimes) -> Figure:
    """Return the figure `figure-heat`."""
    relative = times.seconds / fast(times)
    by_node = np.argsort(times.node, kind="stable")
    by_speed = np.argsort(-np.nanmean(relative, axis=0, where=~np.isnan(relative)), kind="stable")
    views: Views = {}
    for option, values, unit in (
        ("relative to the fastest fifth", relative, "× the fastest fifth"),
        ("seconds", times.seconds, "s"),
    ):
        views[option, "by worker"] = _view(times, values, by_node, unit, False)
        views[option, "slowest first"] = _view(times, values, by_speed, unit, True)
    return Figure(
        "figure-heat",
        "Run time of every worker in every iteration",
        views,
        ["Unit", "Order"],
        height=int(np.clip(150 + 22 * times.workers, 300, 620)),
        tall=True,
    )


def _view(
    times: RunTimes, values: Seconds, order: NDArray[np.int64], unit: str, by_speed: bool
) -> FigureView:
    rows, columns = ceil(times.workers / _ROWS), ceil(times.iterations / _COLUMNS)  # in a cell
    cells = _means(values.T[order], rows, columns)
    cut = _means(times.censored.T[order].astype(np.float64), rows, columns) > 0.5
    low, high = np.nanquantile(cells, [0.005, 0.995])
    names = [str(worker) for worker in order] if rows == 1 else _labels(times.workers, rows)
    grid = {"x": [*range(0, times.iterations, columns)], "dx": columns, "y": names}
    traces = [
        go.Heatmap(
            z=_rounded(cells),
            zmin=float(f"{low:.3g}"),
            zmax=float(f"{max(high, 1.02 * low):.3g}"),
            colorscale="Cividis",
            colorbar={
                "title": {"text": unit, "side": "right"},
                "thickness": 12,
                "outlinewidth": 0,
            },
            hovertemplate=f"worker %{{y}}, iteration %{{x}}: %{{z}} {unit}<extra></extra>",
            **grid,
        )
    ]
    notes = ["The brighter, the slower. Each end of the scale holds half a per cent of the cells."]
    if rows > 1 or columns > 1:
        notes.append(
            f"A cell is the mean of {plural(rows, 'worker')} and {plural(columns, 'iteration')}."
        )
    if cut.any():
        red = go.Heatmap(
            z=[[1 if cell else None for cell in line] for line in cut.tolist()],
            colorscale=[[0, _CUT], [1, _CUT]],
            showscale=False,
            opacity=0.8,
            hoverinfo="skip",
            **grid,
        )
        traces.append(red)
        notes.append("Red: the worker was cut off; it would have taken longer.")
    if np.isnan(times.seconds).any():
        notes.append("Empty: the run time is missing.")
    borders = np.flatnonzero(np.diff(times.node[order])) + 1  # between nodes
    if by_speed or len(borders) > _LINES:
        borders = borders[:0]
    if len(borders):
        notes.append("Lines separate the nodes.")
    title = "worker, slowest first" if by_speed else "worker"
    if by_speed and rows > 1:
        title = "place among the workers, slowest first"
    layout: Plot = {
        "xaxis": axis("iteration", showgrid=False),
        "yaxis": axis(title, type="category", autorange="reversed", showgrid=False),
        "shapes": [across(at / rows - 0.5, **_WHITE) for at in borders.tolist()],
    }
    return view(traces, layout, " ".join(notes))


def _means(values: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """Return the means of blocks of rows and columns, without NaNs; NaN for a block of NaNs."""
    height, width = values.shape
    missing = (0, -height % rows), (0, -width % columns)
    whole = np.pad(values, missing, constant_values=np.nan)
    blocks = whole.reshape(ceil(height / rows), rows, ceil(width / columns), columns)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.nansum(blocks, (1, 3)) / (~np.isnan(blocks)).sum((1, 3))
    return means


def _labels(count: int, size: int) -> list[str]:
    """Return labels of blocks of numbers, such as `10–14`."""
    starts = range(0, count, size)
    ends = (min(start + size, count) - 1 for start in starts)
    return [
        f"{start}" if start == end else f"{start}–{end}"
        for start, end in zip(starts, ends, strict=True)
    ]


def _rounded(cells: NDArray[np.float64]) -> list[list[Any]]:
    return [
        [None if np.isnan(cell) else float(f"{cell:.3g}") for cell in line]
        for line in cells.tolist()
    ]
