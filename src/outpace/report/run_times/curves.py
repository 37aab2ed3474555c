"""Curves of recorded run times: order statistics, and gradients per second by count."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from outpace.predict.recorded.table import Mask
from outpace.report.figures.figure import (
    Figure,
    FigureView,
    Views,
    axis,
    axis_from_0,
    colour,
    dots,
    line,
    rounded,
    thinned,
    view,
)
from outpace.report.run_times.facts import Facts

_POINTS: Final = 500  # per line
_BAND: Final = "rgba(0, 114, 178, 0.22)"
_WIDE: Final = "rgba(0, 114, 178, 0.10)"


def order_statistics(facts: Facts) -> Figure:
    """Return the figure `figure-order`: run times of an iteration from the fastest on."""
    views: Views = {("by place",): _by_place(facts), ("by iteration",): _by_iteration(facts)}
    alt = "Run times from the fastest to the slowest"
    return Figure("figure-order", alt, views, ["Against"], height=400)


def _by_place(facts: Facts) -> FigureView:
    seconds = facts.order.seconds[:, : len(facts.rates.rate)]
    low, tenth, median, ninth, high = np.nanquantile(seconds, [0, 0.1, 0.5, 0.9, 1], axis=0)
    kept = thinned(len(median), _POINTS)
    x = [place + 1 for place in kept]
    band = [
        ("", low, None),
        ("all iterations", high, _WIDE),
        ("", tenth, None),
        ("8 of 10 iterations", ninth, _BAND),
    ]
    traces = [_edge(name, x, values[kept], fill) for name, values, fill in band]
    traces.append(line("median iteration", x, rounded(median[kept], 4)))
    note = "A place is taken by different workers in different iterations."
    return _view(facts, traces, "place of the worker in its iteration: 1 is the fastest", note)


def _by_iteration(facts: Facts) -> FigureView:
    seconds = facts.order.seconds
    kept = thinned(len(seconds), _POINTS)
    highest, median = np.nanmax(seconds, axis=1), np.nanmedian(seconds, axis=1)
    traces = []
    for name, values, place in (
        ("slowest", highest, 4),
        ("median", median, 0),
        ("fastest", seconds[:, 0], 2),
    ):
        peaks = np.maximum.reduceat(values, kept)  # up to the next point, so no spike is lost
        traces.append(line(name, kept, rounded(peaks, 4), place))
    note = "Waiting for all workers takes as long as the slowest one."
    if len(kept) < len(seconds):
        note += " Each point is the highest of neighbouring iterations."
    return _view(facts, traces, "iteration", note)


def _view(facts: Facts, traces: list[go.Scatter], x: str, note: str) -> FigureView:
    if facts.times.censored.any():
        note += (
            " A worker that was cut off counts with the time until then: it would have taken "
            "longer."
        )
    y = axis_from_0("run time (s)")
    return view(traces, {"xaxis": axis(x), "yaxis": y, "hovermode": "x unified"}, note)


def _edge(name: str, x: list[int], y: NDArray[np.float64], fill: str | None) -> go.Scatter:
    """Return the lower edge of a band, or its upper edge if there is a colour to fill it."""
    edge = line(name, x, rounded(y, 4), width=0)
    edge.update(hoverinfo="skip", showlegend=bool(fill))
    return edge.update(fill="tonexty", fillcolor=fill) if fill else edge


def rates_figure(facts: Facts) -> Figure:
    """Return the figure `figure-throughput`."""
    rates = facts.rates
    workers = len(rates.rate)
    traces = [_curve(facts, rates.exact, "solid", "Ω(c)")]
    if not rates.exact.all():  # a dotted part, joined to the solid part
        bounds = ~rates.exact | np.append(~rates.exact[1:], False)
        traces.append(_curve(facts, bounds, "dot", "at most: a worker was cut off"))
    of_all = "waiting for all" + ", the best count" * (rates.best == workers)
    traces.append(_mark(workers, rates.all, of_all, 4))
    if 0 < rates.best < workers:
        best = float(rates.rate[rates.best - 1])
        traces.append(_mark(rates.best, best, f"best count: {rates.best:,}", 2))
    layout = {
        "xaxis": axis_from_0("workers that an iteration waits for (c)"),
        "yaxis": axis_from_0("gradients per second"),
        "hovermode": "closest",
    }
    note = "Counts that fewer than half of the iterations had workers for are left out."
    return Figure(
        "figure-throughput",
        "Gradients per second against the workers waited for",
        {(): view(traces, layout, note if workers < facts.times.workers else "")},
        height=400,
    )


def _curve(facts: Facts, where: Mask, dash: str, name: str) -> go.Scatter:
    kept = thinned(len(where), _POINTS)
    rates = rounded(facts.rates.rate[kept])
    y = [rate if there else None for rate, there in zip(rates, where[kept], strict=True)]
    hover = "%{x} workers: %{y:.4~g} gradients per second<extra></extra>"
    drawn = line(name, [place + 1 for place in kept], y, width=2.4, dash=dash)
    return drawn.update(hovertemplate=hover)


def _mark(count: int, rate: float, name: str, place: int) -> go.Scatter:
    mark = dots(name, [count], rounded([rate]), None, color=colour(place), size=11)
    return mark.update(hovertemplate=f"{name}: %{{y:.4~g}} gradients per second<extra></extra>")
