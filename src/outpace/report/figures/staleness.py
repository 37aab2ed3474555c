"""Shows the staleness of the gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from outpace.report.figures.figure import Figure, FigureView, axis, colour, dash, rounded
from outpace.report.read.runs import Run
from outpace.report.words import escaped, label, listed, percent

_BINS: Final = 40  # maximum
_BARS: Final = 4  # maximum number of runs drawn as bars; more runs are drawn as lines


def staleness(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-staleness`. A note names the runs without staleness."""
    histograms = {place: h for place, run in enumerate(runs) if (h := run.histogram())}
    fresh = [place for place, h in histograms.items() if not any(h[s] for s in h if s)]
    drawn = [place for place in histograms if place not in fresh]
    words = _fresh_words([runs[place].name for place in fresh], alone=len(runs) == 1)
    if not drawn:
        none = "No gradient was applied."
        if all(run.without_servers for run in runs):
            none = "Every worker has parameters of its own, so gradients have no staleness."
        words = words or none
        return Figure("figure-staleness", "Staleness", [], instead=words)
    width = max(max(histograms[place]) for place in drawn) // _BINS + 1
    traces = []
    for place in drawn:
        total = sum(histograms[place].values())
        bins: Counter[int] = Counter()
        for value, count in histograms[place].items():
            bins[value // width] += count
        shares = [bins[step] / total for step in range(max(bins) + 1)]
        steps = [_step(step, width) for step in range(len(shares))]
        traces.append(
            {
                "type": "bar" if len(drawn) <= _BARS else "scatter",
                "name": label(runs[place].name),
                "x": [step * width + (width - 1) / 2 for step in range(len(shares))],
                "y": rounded(shares),
                "hovertext": [
                    f"{escaped(runs[place].name)}: staleness {step}, {percent(share)} of gradients"
                    for step, share in zip(steps, shares, strict=True)
                ],
                "hoverinfo": "text",
                "marker": {"color": colour(place)},
                "line": {"color": colour(place), "dash": dash(place)},
            }
        )
    for trace in traces:
        trace.pop("line" if trace["type"] == "bar" else "marker")
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
    return Figure(
        "figure-staleness", "Staleness of gradients", [FigureView(traces, layout, note)], height=340
    )


def _step(step: int, width: int) -> str:
    return f"{step}" if width == 1 else f"{step * width} to {step * width + width - 1}"


def _fresh_words(names: Sequence[str], alone: bool) -> str:
    if not names:
        return ""
    whose = "All gradients" if alone else f"All gradients of {listed(names)}"
    return f"{whose} had staleness 0: they were applied to the parameters they were computed from."
