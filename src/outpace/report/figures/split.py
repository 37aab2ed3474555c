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
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import Floats, TraceTotals
from outpace.report.words import escaped, label, on_node, seconds

MOST: Final = 16  # workers shown


def split_of_runs(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-split`: a bar per run with means over its workers."""
    shown = [run for run in runs if run.number("seconds", "compute") is not None]
    spans = {
        phase: np.array([run.number("seconds", phase) or 0.0 for run in shown]) for phase in PHASES
    }
    layout: Plot = {
        "xaxis": axis(f"{clock(runs)}, mean per worker (s)", rangemode="tozero"),
        "yaxis": lanes([label(run.name) for run in shown]),
        "barmode": "stack",
        "bargap": 0.35,
    }
    note = "The time after a worker's last iteration, while others still worked, is left out."
    traces = _stacked(spans, [escaped(run.name) for run in shown])
    drawn = any(values.any() for values in spans.values())
    return Figure(
        "figure-split",
        "Time per run, by what workers did",
        {(): view(traces, layout, note)} if drawn else {},
        height=150 + 38 * len(shown),
        tall=True,
        instead="No iteration was finished.",
    )


def split_of_workers(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure:
    """Return the figure `figure-workers`: a bar per worker, a view per run."""
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    whole = (t.compute_s + t.communicate_s + t.wait_s for _, t in known)
    longest = max((float(spent.max()) for spent in whole), default=0.0)
    views: Views = {}
    rows = 1
    for run, sums in known:
        chosen, note = shown_workers(sums)
        rows = max(rows, len(chosen))
        spans = {
            "compute": sums.compute_s[chosen],
            "communicate": sums.communicate_s[chosen],
            "wait": sums.wait_s[chosen],
        }
        layout: Plot = {
            # All runs share one scale, so that switching between them shows the differences.
            "xaxis": axis(f"{clock(runs)} in finished iterations (s)", range=[0, longest * 1.02]),
            "yaxis": lanes(lane_labels(run, chosen), "worker"),
            "barmode": "stack",
            "bargap": 0.25,
        }
        traces = _stacked(spans, [f"worker {label}" for label in lane_labels(run, chosen)])
        views[run.name,] = view(traces, layout, note)
    return Figure(
        "figure-workers",
        "Time per worker, by what it did",
        views,
        ["Run"],
        height=150 + 17 * rows,
        tall=True,
        instead=NO_TRACE,
    )


def lane_labels(run: Run, workers: Sequence[int]) -> list[str]:
    """Return the numbers of workers, with their nodes if the run has some."""
    return [on_node(str(worker), run.node(f"worker-{worker}")) for worker in workers]


def shown_workers(sums: TraceTotals, wanted: Sequence[int] = ()) -> tuple[list[int], str]:
    """Return at most MOST workers, in order, and a sentence if others are not shown.

    Those in `wanted` come first, then those that others waited for most, those that computed
    slowest, and those with low numbers.
    """
    workers = len(sums.iterations)
    slowness = sums.compute_s / np.maximum(sums.iterations, 1)
    notable = [_highest(values, MOST // 4) for values in (sums.ended_s, slowness)]
    order = dict.fromkeys([*wanted, *notable[0], *notable[1], *range(workers)])
    note = (
        f"Shown are {MOST} of {workers:,} workers: those that others waited for, or that were cut "
        "off, most; the slowest; and the first."
    )
    return sorted(list(order)[:MOST]), note if workers > MOST else ""


def _highest(values: Floats, most: int) -> list[int]:
    """Return the indices of the highest positive values."""
    return [int(index) for index in np.argsort(-values, kind="stable")[:most] if values[index] > 0]


def _stacked(spans: dict[str, Floats], names: Sequence[str]) -> list[Any]:
    whole = np.maximum(sum(spans.values(), np.zeros(len(names))), 1e-12)
    traces = []
    for phase, values in spans.items():
        words = [
            f"{name}: {phase} {seconds(value)} ({100 * value / total:.0f} %)"
            for name, value, total in zip(names, values, whole, strict=True)
        ]
        lane, marker = list(range(len(names))), {"color": PHASES[phase]}
        traces.append(bars(phase, rounded(values), lane, words, marker, orientation="h"))
    return traces
