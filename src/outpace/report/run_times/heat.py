"""Shows run times in colours, by worker and iteration."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.statistics import fast
from outpace.predict.recorded.table import RunTimes, Seconds
from outpace.report.figures.figure import Choice, Figure, FigureView, Plot, across, axis
from outpace.report.run_times.blocks import Blocks, means
from outpace.report.words import plural

_ROWS: Final = 240
_COLUMNS: Final = 400
_LINES: Final = 20  # maximum number of lines between nodes
_CUT: Final = "#e4572e"


def heat(times: RunTimes) -> Figure:
    """Return the figure `figure-heat`."""
    relative = times.seconds / fast(times)
    by_node = np.argsort(times.node, kind="stable")
    by_speed = np.argsort(-np.nanmean(relative, axis=0, where=~np.isnan(relative)), kind="stable")
    views = [
        _view(times, values, order, words, sorted_)
        for values, words in ((relative, "× the fastest fifth"), (times.seconds, "s"))
        for order, sorted_ in ((by_node, False), (by_speed, True))
    ]
    choices = [
        Choice("Unit", ["relative to the fastest fifth", "seconds"]),
        Choice("Order", ["by worker", "slowest first"]),
    ]
    height = int(np.clip(150 + 22 * times.workers, 300, 620))
    return Figure(
        "figure-heat",
        "Run time of every worker in every iteration",
        views,
        choices,
        height=height,
        tall=True,
    )


def _view(
    times: RunTimes, values: Seconds, order: NDArray[np.int64], unit: str, by_speed: bool
) -> FigureView:
    rows, columns = Blocks(times.workers, _ROWS), Blocks(times.iterations, _COLUMNS)
    cells = means(values.T[order], rows, columns)
    cut = means(times.censored.T[order].astype(np.float64), rows, columns) > 0.5
    single = rows.size == 1
    names = [str(worker) for worker in order] if single else rows.labels()
    low, high = np.nanquantile(cells, [0.005, 0.995])
    grid = {"x": [int(start) for start in columns.starts], "dx": columns.size, "y": names}
    traces: list[Plot] = [
        {
            "type": "heatmap",
            **grid,
            "z": _rounded(cells),
            "zmin": float(f"{low:.3g}"),
            "zmax": float(f"{max(high, 1.02 * low):.3g}"),
            "colorscale": "Cividis",
            "colorbar": {
                "title": {"text": unit, "side": "right"},
                "thickness": 12,
                "outlinewidth": 0,
            },
            "hovertemplate": f"worker %{{y}}, iteration %{{x}}: %{{z}} {unit}<extra></extra>",
        }
    ]
    if cut.any():
        traces.append(
            {
                "type": "heatmap",
                **grid,
                "z": [[1 if cell else None for cell in line] for line in cut.tolist()],
                "colorscale": [[0, _CUT], [1, _CUT]],
                "showscale": False,
                "opacity": 0.8,
                "hoverinfo": "skip",
            }
        )
    title = "worker, slowest first" if by_speed else "worker"
    if by_speed and not single:
        title = "place among the workers, slowest first"
    layout: Plot = {
        "xaxis": axis("iteration", showgrid=False),
        "yaxis": axis(title, type="category", autorange="reversed", showgrid=False),
    }
    borders = [] if by_speed else _borders(times, order, rows.size)
    layout["shapes"] = borders
    return FigureView(traces, layout, _note(rows, columns, bool(cut.any()), bool(borders), times))


def _borders(times: RunTimes, order: NDArray[np.int64], size: int) -> list[Plot]:
    """Return lines between the nodes, if there are few enough nodes."""
    changes = np.flatnonzero(np.diff(times.node[order])) + 1
    if len(changes) > _LINES:
        return []
    white = {"line": {"width": 1, "color": "#ffffff"}, "opacity": 0.55, "layer": "above"}
    return [across(at / size - 0.5, **white) for at in changes.tolist()]


def _note(rows: Blocks, columns: Blocks, cut: bool, borders: bool, times: RunTimes) -> str:
    parts = ["The brighter, the slower. Each end of the scale holds half a per cent of the cells."]
    if rows.size > 1 or columns.size > 1:
        parts.append(
            f"A cell is the mean of {plural(rows.size, 'worker')} and "
            f"{plural(columns.size, 'iteration')}."
        )
    if cut:
        parts.append("Red: the worker was cut off; it would have taken longer.")
    if np.isnan(times.seconds).any():
        parts.append("Empty: the run time is missing.")
    if borders:
        parts.append("Lines separate the nodes.")
    return " ".join(parts)


def _rounded(cells: NDArray[np.float64]) -> list[list[Any]]:
    return [
        [None if np.isnan(cell) else float(f"{cell:.3g}") for cell in line]
        for line in cells.tolist()
    ]
