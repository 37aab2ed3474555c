"""Shows gradients per second by the number of workers that an iteration waits for."""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.predict.recorded.table import Mask
from outpace.report.figures.figure import Figure, FigureView, Plot, axis, colour, line
from outpace.report.run_times.facts import Facts
from outpace.report.words import number, percent

_POINTS: Final = 800


def rates_figure(facts: Facts) -> Figure:
    """Return the figure `figure-throughput`."""
    rates = facts.rates
    traces = [_curve(facts, rates.exact, "solid", "Ω(c)")]
    if not rates.exact.all():  # a dotted part, joined to the solid part
        bounds = ~rates.exact | np.append(~rates.exact[1:], False)
        traces.append(_curve(facts, bounds, "dot", "at most: a worker was cut off"))
    of_all = "waiting for all" + ", the best count" * (rates.best == len(rates.rate))
    traces.append(_mark(len(rates.rate), rates.all, of_all, 4))
    if 0 < rates.best < len(rates.rate):
        best = float(rates.rate[rates.best - 1])
        traces.append(_mark(rates.best, best, f"best count: {rates.best:,}", 2))
    layout = {
        "xaxis": axis("workers that an iteration waits for (c)", rangemode="tozero"),
        "yaxis": axis("gradients per second", rangemode="tozero", hoverformat=".4~g"),
        "hovermode": "closest",
    }
    return Figure(
        "figure-throughput",
        "Gradients per second against the workers waited for",
        [FigureView(traces, layout, _note(facts))],
        height=400,
    )


def _curve(facts: Facts, where: Mask, dash: str, name: str) -> Plot:
    rate, workers = facts.rates.rate, len(facts.rates.rate)
    kept = np.unique(np.linspace(0, workers - 1, min(workers, _POINTS)).round().astype(int))
    y = [float(f"{rate[place]:.5g}") if where[place] else None for place in kept]
    drawn = line(name, [int(place) + 1 for place in kept], y, width=2.4, dash=dash)
    hover = "%{x} workers: %{y:.4~g} gradients per second<extra></extra>"
    return {**drawn, "hovertemplate": hover}


def _mark(count: int, rate: float, name: str, place: int) -> Plot:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [count],
        "y": [float(f"{rate:.5g}")],
        "marker": {"color": colour(place), "size": 11},
        "hovertemplate": f"{name}: %{{y:.4~g}} gradients per second<extra></extra>",
    }


def _note(facts: Facts) -> str:
    rates = facts.rates
    if rates.gain is None:
        return "Too many workers were cut off to say what waiting for all would give."
    least = "" if rates.exact[-1] else "at least "
    note = (
        f"{number(float(rates.rate[rates.best - 1]))} against {number(rates.all)} gradients per "
        f"second: {least}{percent(rates.gain)} more."
    )
    if rates.hindsight is not None:
        note += (
            f" With the best count of each iteration, which is known only afterwards, it would be "
            f"{number(rates.hindsight)}: waiting for all gives "
            f"{percent(rates.all / rates.hindsight)} of that."
        )
    if len(rates.rate) < facts.times.workers:
        note += " Counts that fewer than half of the iterations had workers for are left out."
    return note
