"""Shows how runs and workers divided their time: compute, communicate, wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from outpace.report.figures.figure import (
    NO_TRACE,
    PHASES,
    Figure,
    Plot,
    Views,
    axis,
    bars,
    lanes,
    rounded,
    view,
)
from outpace.report.read.runs import Floats, Run, clock, node_in
from outpace.report.read.traces import Totals
from outpace.report.words import escaped, label, on_node, seconds

MOST: Final = 16  # number of workers shown


def split_of_runs(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-split`: a bar per run with means over its workers."""
    shown = [run for run in runs if run.number("seconds", "compute") is not None]
    spans = [np.array([run.number("seconds", phase) or 0.0 for run in shown]) for phase in PHASES]
    layout: Plot = {
        "xaxis": axis(f"{clock(runs)}, mean per worker (s)", rangemode="tozero"),
        "yaxis": lanes([label(run.name) for run in shown]),
        "barmode": "stack",
        "bargap": 0.35,
    }
    note = "The time after a worker's last iteration, while others still worked, is left out."
    traces = _stacked(spans, [escaped(run.name) for run in shown])
    return Figure(
        "figure-split",
        "Time per run, by what workers did",
        {(): view(traces, layout, note)} if any(values.any() for values in spans) else {},
        height=150 + 38 * len(shown),
        tall=True,
        instead="No iteration was finished.",
    )


def split_of_workers(runs: Sequence[Run], totals: Sequence[Totals | None]) -> Figure:
    """Return the figure `figure-workers`: a bar per worker, a view per run."""
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    whole = [sums.compute_s + sums.communicate_s + sums.wait_s for _, sums in known]
    longest = max((float(spent.max()) for spent in whole), default=0.0)
    views: Views = {}
    for run, sums in known:
        chosen, note = shown_workers(sums)
        labels = lane_labels(run, chosen)
        layout: Plot = {
            # All runs share one scale, so that switching between them shows the differences.
            "xaxis": axis(f"{clock(runs)} in finished iterations (s)", range=[0, longest * 1.02]),
            "yaxis": lanes(labels, "worker"),
            "barmode": "stack",
            "bargap": 0.25,
        }
        spans = [each[chosen] for each in (sums.compute_s, sums.communicate_s, sums.wait_s)]
        traces = _stacked(spans, [f"worker {label}" for label in labels])
        views[run.name,] = view(traces, layout, note)
    rows = max((len(sums.iterations) for _, sums in known), default=1)
    return Figure(
        "figure-workers",
        "Time per worker, by what it did",
        views,
        ["Run"],
        height=150 + 17 * min(rows, MOST),
        tall=True,
        instead=NO_TRACE,
    )


def lane_labels(run: Run, workers: Sequence[int]) -> list[str]:
    """Return the numbers of workers, with their nodes if the run has some."""
    return [on_node(str(each), node_in(run.summary, f"worker-{each}")) for each in workers]


def shown_workers(sums: Totals, wanted: Sequence[int] = ()) -> tuple[list[int], str]:
    """Return at most MOST workers, in order, and a sentence if others are not shown.

    Workers in `wanted` have priority, then some workers that others waited for most, then low
    numbers.
    """
    workers = len(sums.iterations)
    waited_for = (-sums.ended_s).argsort(kind="stable")[: MOST // 2].tolist()
    order = dict.fromkeys([*wanted, *waited_for, *range(workers)])
    note = f"Shown are {MOST} of {workers:,} workers: those waited for most, and the first."
    return sorted(list(order)[:MOST]), note if workers > MOST else ""


def _stacked(spans: Sequence[Floats], names: Sequence[str]) -> list[Any]:
    whole = np.maximum(np.sum(spans, axis=0), 1e-12)
    traces = []
    for (phase, colour), values in zip(PHASES.items(), spans, strict=True):
        words = [
            f"{name}: {phase} {seconds(value)} ({100 * value / total:.0f} %)"
            for name, value, total in zip(names, values, whole, strict=True)
        ]
        lane = list(range(len(names)))
        traces.append(bars(phase, rounded(values), lane, words, {"color": colour}, orientation="h"))
    return traces
