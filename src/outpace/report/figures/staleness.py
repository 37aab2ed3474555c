"""Shows the staleness of the gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from outpace.report.figures.figure import Figure, axis, bars, colour, line, rounded, view
from outpace.report.read.runs import Run
from outpace.report.words import escaped, label, listed, percent

_BINS: Final = 40  # maximum
_BARS: Final = 4  # maximum number of runs drawn as bars; more runs are drawn as lines


def staleness(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-staleness`. A note names the runs without staleness."""
    histograms = {place: h for place, run in enumerate(runs) if (h := run.histogram())}
    drawn = [place for place, h in histograms.items() if any(h[s] for s in h if s)]
    fresh = [runs[place].name for place in histograms if place not in drawn]
    words = ""
    if fresh:
        whose = "All gradients" if len(runs) == 1 else f"All gradients of {listed(fresh)}"
        words = (
            f"{whose} had staleness 0: they were applied to the parameters they were computed from."
        )
    if not drawn:
        none = "No gradient was applied."
        if all(run.without_servers for run in runs):
            none = "Every worker has parameters of its own, so gradients have no staleness."
        return Figure("figure-staleness", "Staleness", {}, instead=words or none)
    width = max(max(histograms[place]) for place in drawn) // _BINS + 1
    traces = []
    for place in drawn:
        total = sum(histograms[place].values())
        bins: Counter[int] = Counter()
        for value, count in histograms[place].items():
            bins[value // width] += count
        name, shares, middles, hover = runs[place].name, [], [], []
        for step in range(max(bins) + 1):
            first, last = step * width, (step + 1) * width - 1
            shares.append(bins[step] / total)
            middles.append((first + last) / 2)
            values = f"{first}" if width == 1 else f"{first} to {last}"
            share = percent(shares[-1])
            hover.append(f"{escaped(name)}: staleness {values}, {share} of gradients")
        if len(drawn) <= _BARS:
            look = {"color": colour(place)}
            traces.append(bars(label(name), middles, rounded(shares), hover, look))
        else:
            drawing = line(label(name), middles, rounded(shares), place)
            traces.append(drawing.update(hovertext=hover, hoverinfo="text"))
    unit = "updates" if width == 1 else f"updates, in steps of {width}"
    layout = {
        "xaxis": axis(f"staleness ({unit})", rangemode="tozero"),
        "yaxis": axis("share of gradients (%)", tickformat=".0%", rangemode="tozero"),
        "barmode": "group",
        "bargap": 0.15,
    }
    note = (
        "Staleness: number of updates of the parameters after a gradient's worker read them and "
        f"before the gradient was applied, counted per gradient and server. {words}"
    )
    shown = view(traces, layout, note)
    return Figure("figure-staleness", "Staleness of gradients", {(): shown}, height=340)
