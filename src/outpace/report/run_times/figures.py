"""The figures of recorded run times: all times, gains of waiting for fewer, order, stragglers."""

from __future__ import annotations

from math import ceil
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from outpace.predict.recorded.statistics import SLOW, fast
from outpace.predict.recorded.table import Mask
from outpace.report.figures.figure import (
    PHASES,
    Figure,
    axis,
    axis_from_0,
    bars,
    colour,
    dots,
    line,
    rounded,
    thinned,
    view,
)
from outpace.report.run_times.facts import Facts
from outpace.report.words import percent, plural

_ROWS: Final = 240  # of the heat map
_COLUMNS: Final = 400
_POINTS: Final = 500  # per line
_BARS: Final = 40
_FEWEST: Final = 12  # places for bars: a single bar must not fill the figure
_CUT: Final = "#e4572e"
_BAND: Final = "rgba(0, 114, 178, 0.22)"
_WIDE: Final = "rgba(0, 114, 178, 0.10)"


def heat(facts: Facts) -> Figure:
    """Return the figure `figure-heat`: each run time in a colour, by worker and iteration."""
    times = facts.times
    order = np.argsort(times.node, kind="stable")
    rows, columns = ceil(times.workers / _ROWS), ceil(times.iterations / _COLUMNS)  # in a cell
    cells = _means((times.seconds / fast(times)).T[order], rows, columns)
    cut = _means(times.censored.T[order].astype(np.float64), rows, columns) > 0.5
    low, high = np.nanquantile(cells, [0.005, 0.995])
    firsts, lasts = order[::rows], order[[*range(rows - 1, times.workers - 1, rows), -1]]
    names = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(firsts, lasts, strict=True)]
    grid = {"x": [*range(0, times.iterations, columns)], "dx": columns, "y": names}
    unit = "times the fastest fifth"
    hover = f"worker %{{y}}, iteration %{{x}}: %{{z}} {unit}<extra></extra>"
    bar = {"title": {"text": unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    scale = {"zmin": float(f"{low:.3g}"), "zmax": float(f"{max(high, 1.02 * low):.3g}")}
    z = [[None if np.isnan(cell) else float(f"{cell:.3g}") for cell in row] for row in cells]
    traces = [
        go.Heatmap(z=z, **scale, colorscale="Cividis", colorbar=bar, hovertemplate=hover, **grid)
    ]
    notes = ["The brighter, the slower. Each end of the scale holds half a per cent of the cells."]
    if facts.nodes > 1:
        notes.append("Workers are in the order of their nodes.")
    if rows > 1 or columns > 1:
        notes.append(
            f"A cell is the mean of {plural(rows, 'worker')} and {plural(columns, 'iteration')}."
        )
    if cut.any():
        marked = [[1 if cell else None for cell in row] for row in cut.tolist()]
        look = {"colorscale": [[0, _CUT], [1, _CUT]], "showscale": False, "opacity": 0.8}
        traces.append(go.Heatmap(z=marked, hoverinfo="skip", **look, **grid))
        notes.append("Red: the worker was cut off; it would have taken longer.")
    if np.isnan(times.seconds).any():
        notes.append("Empty: the run time is missing.")
    layout = {
        "xaxis": axis("iteration", showgrid=False),
        "yaxis": axis("worker", type="category", autorange="reversed", showgrid=False),
    }
    return Figure(
        "figure-heat",
        "Run time of every worker in every iteration",
        {(): view(traces, layout, " ".join(notes))},
        height=int(np.clip(150 + 22 * times.workers, 300, 620)),
        tall=True,
    )


def _means(values: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """Return the means of blocks of rows and columns, without NaNs; NaN for a block of NaNs."""
    height, width = values.shape
    missing = (0, -height % rows), (0, -width % columns)
    whole = np.pad(values, missing, constant_values=np.nan)
    blocks = whole.reshape(ceil(height / rows), rows, ceil(width / columns), columns)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.nansum(blocks, (1, 3)) / (~np.isnan(blocks)).sum((1, 3))
    return means


def throughput(facts: Facts) -> Figure:
    """Return the figure `figure-throughput`: gradients per second by the workers waited for."""
    rates = facts.rates
    workers = len(rates.rate)
    traces = [_rates(facts, rates.exact, "solid", "Ω(c)")]
    if not rates.exact.all():  # a dotted part, joined to the solid part
        bounds = ~rates.exact | np.append(~rates.exact[1:], False)
        traces.append(_rates(facts, bounds, "dot", "at most: a worker was cut off"))
    marks = [(workers, "waiting for all" + ", the best count" * (rates.best == workers), 4)]
    if 0 < rates.best < workers:
        marks.append((rates.best, f"best count: {rates.best:,}", 2))
    for count, name, place in marks:
        rate = float(rates.rate[count - 1]) if count < workers else rates.all
        mark = dots(name, [count], rounded([rate]), None, color=colour(place), size=11)
        hover = f"{name}: %{{y:.4~g}} gradients per second<extra></extra>"
        traces.append(mark.update(hovertemplate=hover))
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


def _rates(facts: Facts, where: Mask, dash: str, name: str) -> go.Scatter:
    shown = thinned(len(where), _POINTS)
    rates = rounded(facts.rates.rate[shown])
    y = [rate if there else None for rate, there in zip(rates, where[shown], strict=True)]
    drawn = line(name, [place + 1 for place in shown], y, width=2.4, dash=dash)
    return drawn.update(hovertemplate="%{x} workers: %{y:.4~g} gradients per second<extra></extra>")


def order_statistics(facts: Facts) -> Figure:
    """Return the figure `figure-order`: run times of an iteration from the fastest on."""
    seconds = facts.order.seconds[:, : len(facts.rates.rate)]
    low, tenth, median, ninth, high = np.nanquantile(seconds, [0, 0.1, 0.5, 0.9, 1], axis=0)
    shown = thinned(len(median), _POINTS)
    x = [place + 1 for place in shown]
    traces = []
    for name, lower, upper, fill in (
        ("all iterations", low, high, _WIDE),
        ("8 of 10 iterations", tenth, ninth, _BAND),
    ):
        bottom, top = (line(name, x, rounded(edge[shown], 4), width=0) for edge in (lower, upper))
        traces.append(bottom.update(hoverinfo="skip", showlegend=False))
        traces.append(top.update(hoverinfo="skip", fill="tonexty", fillcolor=fill))
    traces.append(line("median iteration", x, rounded(median[shown], 4)))
    note = "A place is taken by different workers in different iterations."
    if facts.times.censored.any():
        note += (
            " A worker that was cut off counts with the time until then: it would have taken "
            "longer."
        )
    layout = {
        "xaxis": axis("place of the worker in its iteration: 1 is the fastest"),
        "yaxis": axis_from_0("run time (s)"),
        "hovermode": "x unified",
    }
    alt = "Run times from the fastest to the slowest"
    return Figure("figure-order", alt, {(): view(traces, layout, note)}, height=400)


def stragglers(facts: Facts) -> Figure:
    """Return the figure `figure-stragglers`: how often each worker is slow, and how long."""
    share, longest, runs = facts.slowness.share, facts.slowness.longest, facts.slowness.runs
    order = np.argsort(-share, kind="stable")
    shown = order[share[order] > 0][:_BARS]
    if not len(shown):
        words = f"No worker ever took more than {SLOW:g} times as long as the fastest fifth."
        return Figure("figure-stragglers", "Stragglers", {}, instead=words)
    node = facts.times.node
    hover = [
        f"worker {worker}, node {node[worker]}: slow in {percent(float(share[worker]))} of its "
        f"iterations,<br>up to {plural(int(longest[worker]), 'iteration')} in a row"
        for worker in shown
    ]
    slow = int((share > 0).sum())
    note = f"{plural(slow, 'worker')} of {len(share):,} were slow at least once."
    if len(shown) < slow:
        note += f" Shown are the {len(shown)} that were slow most often."
    alone = float((runs == 1).sum() / runs.sum())
    note += (
        f" {percent(alone)} of the slow iterations stood alone, and could not be foreseen from the "
        f"one before. The longest period was {plural(int(runs.max()), 'iteration')}."
    )
    names = [str(worker) for worker in shown]
    trace = bars("slow", names, rounded(share[shown], 4), hover, {"color": PHASES["wait"]})
    places = [-0.5, max(len(names), _FEWEST) - 0.5]
    layout = {
        "xaxis": axis("worker, most often slow first", type="category", range=places),
        "yaxis": axis("share of iterations (%)", tickformat=".2~p", rangemode="tozero"),
        "bargap": 0.25,
    }
    drawn = view([trace.update(showlegend=False)], layout, note)
    return Figure("figure-stragglers", "How often workers are slow", {(): drawn}, height=340)
