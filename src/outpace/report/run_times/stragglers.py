"""Shows which workers are slow, how often and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.statistics import SLOW
from outpace.report.figures.figure import PHASES, Choice, Figure, FigureView, Plot, axis
from outpace.report.run_times.facts import Facts
from outpace.report.words import percent, plural

_BARS: Final = 40
_BINS: Final = 40
_FEWEST: Final = 12


def stragglers(facts: Facts) -> Figure:
    """Return the figure `figure-stragglers`."""
    if not facts.slowness.slow.any():
        words = f"No worker ever took more than {SLOW:g} times as long as the fastest fifth."
        return Figure("figure-stragglers", "Stragglers", [], instead=words)
    views, options = [_workers(facts)], ["workers"]
    if facts.nodes > 1:
        views.append(_nodes(facts))
        options.append("nodes")
    views.append(_spells(facts))
    options.append("how long")
    return Figure(
        "figure-stragglers",
        "How often workers are slow",
        views,
        [Choice("What", options)],
        height=340,
    )


def _workers(facts: Facts) -> FigureView:
    share, longest, node = facts.slowness.share, facts.slowness.longest, facts.times.node
    order = np.argsort(-share, kind="stable")
    shown = order[share[order] > 0][:_BARS]
    words = [
        f"worker {worker}"
        + (f", node {node[worker]}" if facts.nodes > 1 else "")
        + f": slow in {percent(float(share[worker]))} of its iterations,<br>"
        f"up to {plural(int(longest[worker]), 'iteration')} in a row"
        for worker in shown
    ]
    never = int((share == 0).sum())
    note = f"{plural(int((share > 0).sum()), 'worker')} of {len(share):,} were slow at least once."
    if len(shown) < len(share) - never:
        note += f" Shown are the {len(shown)} that were slow most often."
    return FigureView(
        [_bars([str(worker) for worker in shown], share[shown], words)],
        _layout("worker, most often slow first", len(shown)),
        note,
    )


def _nodes(facts: Facts) -> FigureView:
    there = (~np.isnan(facts.times.seconds)).sum(axis=0)
    slow = facts.slowness.slow.sum(axis=0)
    nodes, place = np.unique(facts.times.node, return_inverse=True)
    counts = np.maximum(np.bincount(place, there), 1)
    share = np.bincount(place, slow) / counts
    order = np.argsort(-share, kind="stable")[:_BARS]
    sizes = np.bincount(place)
    words = [
        f"node {nodes[at]}, {plural(int(sizes[at]), 'worker')}: "
        f"{percent(float(share[at]))} of their iterations were slow"
        for at in order
    ]
    spread = "Unequal bars mean that workers of a node slow down together."
    return FigureView(
        [_bars([str(nodes[at]) for at in order], share[order], words)],
        _layout("node, most often slow first", len(order)),
        spread,
    )


def _spells(facts: Facts) -> FigureView:
    """Show the share of slow iterations by the length of the spell they belong to."""
    runs = facts.slowness.runs
    width = (int(runs.max()) - 1) // _BINS + 1
    mass = np.bincount((runs - 1) // width, runs)
    starts = np.arange(len(mass)) * width + 1
    names = [f"{at}" if width == 1 else f"{at}–{at + width - 1}" for at in starts]
    share = mass / mass.sum()
    words = [
        f"spells of {name} iterations: {percent(float(part))} of the slow iterations"
        for name, part in zip(names, share, strict=True)
    ]
    alone = float((runs == 1).sum() / runs.sum())
    note = (
        f"{percent(alone)} of the slow iterations stood alone, and could not be foreseen from "
        f"the one before. The longest spell was {plural(int(runs.max()), 'iteration')}."
    )
    layout = _layout("length of the spell (iterations)", len(names))
    layout["yaxis"]["title"]["text"] = "share of slow iterations (%)"
    return FigureView([_bars(names, share, words)], layout, note)


def _bars(names: Sequence[str], share: NDArray[np.float64], words: Sequence[str]) -> Plot:
    return {
        "type": "bar",
        "name": "slow",
        "x": list(names),
        "y": [float(f"{value:.4g}") for value in share],
        "marker": {"color": PHASES["wait"]},
        "hovertext": list(words),
        "hoverinfo": "text",
        "showlegend": False,
    }


def _layout(title: str, bars: int) -> Plot:
    shown = [-0.5, max(bars, _FEWEST) - 0.5]  # a single bar must not fill the figure
    return {
        "xaxis": axis(title, type="category", showgrid=False, range=shown),
        "yaxis": axis("share of iterations (%)", tickformat=".2~p", rangemode="tozero"),
        "bargap": 0.25,
    }
