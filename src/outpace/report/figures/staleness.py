"""Shows the staleness of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.report.figures.figure import Figure, axis, bars, colour, rounded, view
from outpace.report.read.runs import Run
from outpace.report.words import escaped, label, listed, percent

_BINS: Final = 40  # largest number of bars
_WHAT: Final = (
    "Staleness: number of updates of the parameters after a gradient's worker read them and "
    "before the gradient was applied, counted per gradient and server."
)


def staleness(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-staleness`. A note names the runs without staleness."""
    histograms = {place: h for place, run in enumerate(runs) if (h := run.histogram())}
    drawn = {place: h for place, h in histograms.items() if any(h[each] for each in h if each)}
    fresh = listed([runs[place].name for place in histograms if place not in drawn])
    words = f"All gradients of {fresh} had staleness 0." if fresh else ""
    if not drawn:
        none = words or "No gradient was applied to parameters that workers share."
        return Figure("figure-staleness", "Staleness", {}, instead=none)
    width = max(max(histogram) for histogram in drawn.values()) // _BINS + 1
    traces = []
    for place, histogram in drawn.items():
        steps = [value // width for value in histogram]
        shares = np.bincount(steps, list(histogram.values())) / sum(histogram.values())
        firsts = np.arange(len(shares)) * width
        hover = [
            f"{escaped(runs[place].name)}: staleness from {first}, {percent(share)} of gradients"
            for first, share in zip(firsts, shares, strict=True)
        ]
        marker = {"color": colour(place)}
        middles = (firsts + (width - 1) / 2).tolist()
        traces.append(bars(label(runs[place].name), middles, rounded(shares), hover, marker))
    unit = "updates" if width == 1 else f"updates, in steps of {width}"
    layout = {
        "xaxis": axis(f"staleness ({unit})", rangemode="tozero"),
        "yaxis": axis("share of gradients (%)", tickformat=".0%", rangemode="tozero"),
        "barmode": "group",
        "bargap": 0.15,
    }
    shown = view(traces, layout, f"{_WHAT} {words}".strip())
    return Figure("figure-staleness", "Staleness of gradients", {(): shown}, height=340)
