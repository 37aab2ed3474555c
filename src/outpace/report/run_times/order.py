"""Order statistics: an iteration's run times from the fastest to the slowest."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.report.figures.figure import Choice, Figure, FigureView, Plot, axis, colour
from outpace.report.run_times.facts import Facts

_POINTS: Final = 500  # per line
_BAND: Final = "rgba(0, 114, 178, 0.22)"
_WIDE: Final = "rgba(0, 114, 178, 0.10)"


def order_statistics(facts: Facts) -> Figure:
    """The figure `figure-order`."""
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
    traces.append(_line("median iteration", x, median[kept], 0))
    layout = {
        "xaxis": axis("place of the worker in its iteration: 1 is the fastest"),
        "yaxis": axis("run time (s)", rangemode="tozero", hoverformat=".3~g"),
        "hovermode": "x unified",
    }
    return FigureView(
        traces, layout, "The worker at the same place need not be the same one." + _cut(facts)
    )


def _by_iteration(facts: Facts) -> FigureView:
    seconds = facts.order.seconds
    kept = _kept(len(seconds))
    x = [int(iteration) for iteration in kept]
    highest, median = np.nanmax(seconds, axis=1), np.nanmedian(seconds, axis=1)
    lines = [("slowest", highest, 4), ("median", median, 0), ("fastest", seconds[:, 0], 2)]
    traces = [_line(name, x, _peaks(values, kept), place) for name, values, place in lines]
    layout = {
        "xaxis": axis("iteration"),
        "yaxis": axis("run time (s)", rangemode="tozero", hoverformat=".3~g"),
        "hovermode": "x unified",
    }
    thinned = len(kept) < len(seconds)
    note = "Waiting for all takes as long as the slowest." + _cut(facts)
    return FigureView(traces, layout, note + " The highest of neighbours is drawn." * thinned)


def _cut(facts: Facts) -> str:
    cut = " Who was cut off counts as having taken that long, and would have taken longer."
    return cut if facts.times.censored.any() else ""


def _kept(count: int) -> NDArray[np.int64]:
    """Places of at most so many points, the first one included; without thinning all."""
    if count <= _POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, _POINTS).round().astype(np.int64))


def _peaks(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The highest from each start to the next: no spike is lost by thinning."""
    found: NDArray[np.float64] = np.maximum.reduceat(values, starts)
    return found


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def _line(name: str, x: list[int], y: NDArray[np.float64], place: int) -> Plot:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": _rounded(y),
        "line": {"color": colour(place), "width": 2},
    }


def _edge(name: str, x: list[int], y: NDArray[np.float64], fill: str | None) -> Plot:
    """The lower edge of a band, or with a colour the upper one that fills it."""
    edge: Plot = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": _rounded(y),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": fill is not None,
    }
    return edge if fill is None else {**edge, "fill": "tonexty", "fillcolor": fill}
