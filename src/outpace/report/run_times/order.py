"""Shows order statistics: the run times of an iteration from the fastest to the slowest."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.report.figures.figure import Choice, Figure, FigureView, Plot, axis, line, rounded
from outpace.report.run_times.facts import Facts

_POINTS: Final = 500  # per line
_BAND: Final = "rgba(0, 114, 178, 0.22)"
_WIDE: Final = "rgba(0, 114, 178, 0.10)"


def order_statistics(facts: Facts) -> Figure:
    """Return the figure `figure-order`."""
    choices = [Choice("Against", ["by place", "by iteration"])]
    return Figure(
        "figure-order",
        "Run times from the fastest to the slowest",
        [_by_place(facts), _by_iteration(facts)],
        choices,
        height=400,
    )


def _by_place(facts: Facts) -> FigureView:
    seconds = facts.order.seconds[:, : len(facts.rates.rate)]
    low, tenth, median, ninth, high = np.nanquantile(seconds, [0, 0.1, 0.5, 0.9, 1], axis=0)
    kept = _kept(len(median))
    x = [int(place) + 1 for place in kept]
    band = [
        ("", low, None),
        ("all iterations", high, _WIDE),
        ("", tenth, None),
        ("8 of 10 iterations", ninth, _BAND),
    ]
    traces = [_edge(name, x, values[kept], fill) for name, values, fill in band]
    traces.append(line("median iteration", x, rounded(median[kept], 4)))
    layout = {
        "xaxis": axis("place of the worker in its iteration: 1 is the fastest"),
        "yaxis": axis("run time (s)", rangemode="tozero", hoverformat=".3~g"),
        "hovermode": "x unified",
    }
    return FigureView(
        traces,
        layout,
        "A place is taken by different workers in different iterations." + _cut(facts),
    )


def _by_iteration(facts: Facts) -> FigureView:
    seconds = facts.order.seconds
    kept = _kept(len(seconds))
    x = [int(iteration) for iteration in kept]
    highest, median = np.nanmax(seconds, axis=1), np.nanmedian(seconds, axis=1)
    lines = [("slowest", highest, 4), ("median", median, 0), ("fastest", seconds[:, 0], 2)]
    traces = [line(name, x, rounded(_peaks(values, kept), 4), at) for name, values, at in lines]
    layout = {
        "xaxis": axis("iteration"),
        "yaxis": axis("run time (s)", rangemode="tozero", hoverformat=".3~g"),
        "hovermode": "x unified",
    }
    thinned = len(kept) < len(seconds)
    note = "Waiting for all workers takes as long as the slowest one." + _cut(facts)
    return FigureView(
        traces, layout, note + " Each point is the highest of neighbouring iterations." * thinned
    )


def _cut(facts: Facts) -> str:
    cut = " A worker that was cut off counts with the time until then: it would have taken longer."
    return cut if facts.times.censored.any() else ""


def _kept(count: int) -> NDArray[np.int64]:
    """Return the indices of at most _POINTS evenly spaced points."""
    if count <= _POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, _POINTS).round().astype(np.int64))


def _peaks(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the highest value from each start to the next, so that no spike is lost."""
    found: NDArray[np.float64] = np.maximum.reduceat(values, starts)
    return found


def _edge(name: str, x: list[int], y: NDArray[np.float64], fill: str | None) -> Plot:
    """Return the lower edge of a band, or its upper edge if there is a colour to fill it."""
    edge: Plot = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": rounded(y, 4),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": fill is not None,
    }
    return edge if fill is None else {**edge, "fill": "tonexty", "fillcolor": fill}
