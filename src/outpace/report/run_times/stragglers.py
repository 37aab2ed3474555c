"""Shows which workers are slow, how often and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.statistics import SLOW
from outpace.report.figures.figure import (
    PHASES,
    Figure,
    FigureView,
    Views,
    axis,
    bars,
    rounded,
    view,
)
from outpace.report.run_times.facts import Facts
from outpace.report.words import percent, plural

_BARS: Final = 40
_BINS: Final = 40
_FEWEST: Final = 12


def stragglers(facts: Facts) -> Figure:
    """Return the figure `figure-stragglers`."""
    if not facts.slowness.slow.any():
        words = f"No worker ever took more than {SLOW:g} times as long as the fastest fifth."
        return Figure("figure-stragglers", "Stragglers", {}, instead=words)
    views: Views = {("workers",): _workers(facts)}
    if facts.nodes > 1:
        views["nodes",] = _nodes(facts)
    views["how long",] = _spells(facts)
    alt = "How often workers are slow"
    return Figure("figure-stragglers", alt, views, ["What"], height=340)


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
    slow = int((share > 0).sum())
    note = f"{plural(slow, 'worker')} of {len(share):,} were slow at least once."
    if len(shown) < slow:
        note += f" Shown are the {len(shown)} that were slow most often."
    return _view("worker, most often slow first", shown, share[shown], words, note)


def _nodes(facts: Facts) -> FigureView:
    there = (~np.isnan(facts.times.seconds)).sum(axis=0)
    nodes, place, sizes = np.unique(facts.times.node, return_inverse=True, return_counts=True)
    slow = np.bincount(place, facts.slowness.slow.sum(axis=0))
    share = slow / np.maximum(np.bincount(place, there), 1)
    order = np.argsort(-share, kind="stable")[:_BARS]
    words = [
        f"node {nodes[at]}, {plural(int(sizes[at]), 'worker')}: "
        f"{percent(float(share[at]))} of their iterations were slow"
        for at in order
    ]
    note = "Unequal bars mean that workers of a node slow down together."
    return _view("node, most often slow first", nodes[order], share[order], words, note)


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
    return _view("length of the spell (iterations)", names, share, words, note, of="slow ")


def _view(
    title: str,
    names: Sequence[object] | NDArray[np.int64],
    share: NDArray[np.float64],
    words: Sequence[str],
    note: str,
    of: str = "",
) -> FigureView:
    labels = [str(name) for name in names]
    trace = bars("slow", labels, rounded(share, 4), words, {"color": PHASES["wait"]})
    shown = [-0.5, max(len(labels), _FEWEST) - 0.5]  # a single bar must not fill the figure
    layout = {
        "xaxis": axis(title, type="category", showgrid=False, range=shown),
        "yaxis": axis(f"share of {of}iterations (%)", tickformat=".2~p", rangemode="tozero"),
        "bargap": 0.25,
    }
    return view([trace.update(showlegend=False)], layout, note)
