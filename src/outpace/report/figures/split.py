"""Shows how runs and workers divided their time: compute, communicate, wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.report.figures.figure import (
    PHASES,
    Choice,
    Figure,
    FigureView,
    Plot,
    axis,
    lanes,
    rounded,
)
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import Floats, TraceTotals
from outpace.report.words import escaped, label, seconds

_MOST: Final = 32  # workers shown


def split_of_runs(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-split`: a bar per run with means over its workers."""
    shown = [run for run in runs if run.number("seconds", "compute") is not None]
    names = [escaped(run.name) for run in shown]
    labels = [label(run.name) for run in shown]
    spans = {
        phase: np.array([run.number("seconds", phase) or 0.0 for run in shown]) for phase in PHASES
    }
    layout: Plot = {
        "xaxis": axis(f"{clock(runs)}, mean per worker (s)", rangemode="tozero"),
        "yaxis": lanes(labels),
        "barmode": "stack",
        "bargap": 0.35,
    }
    note = "The time after a worker's last iteration, while others still worked, is left out."
    drawn = any(values.any() for values in spans.values())
    views = [FigureView(_bars(spans, names), layout, note)] if drawn else []
    return Figure(
        "figure-split",
        "Time per run, by what workers did",
        views,
        height=150 + 38 * len(shown),
        tall=True,
        instead="No iteration was finished.",
    )


def split_of_workers(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure:
    """Return the figure `figure-workers`: a bar per worker, a view per run."""
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    longest = max(
        (float((t.compute_s + t.communicate_s + t.wait_s).max()) for _, t in known), default=0.0
    )
    views, rows = [], 1
    for _, sums in known:
        chosen, note = shown_workers(sums)
        rows = max(rows, len(chosen))
        names = [f"worker {worker}" for worker in chosen]
        spans = {
            "compute": sums.compute_s[chosen],
            "communicate": sums.communicate_s[chosen],
            "wait": sums.wait_s[chosen],
        }
        layout: Plot = {
            # All runs share one scale, so that switching between them shows the differences.
            "xaxis": axis(f"{clock(runs)} in finished iterations (s)", range=[0, longest * 1.02]),
            "yaxis": lanes([str(worker) for worker in chosen], "worker"),
            "barmode": "stack",
            "bargap": 0.25,
        }
        views.append(FigureView(_bars(spans, names), layout, note))
    return Figure(
        "figure-workers",
        "Time per worker, by what it did",
        views,
        [Choice("Run", [run.name for run, _ in known])],
        height=150 + 17 * rows,
        tall=True,
        instead="There is no readable trace with a finished iteration.",
    )


def shown_workers(sums: TraceTotals) -> tuple[list[int], str]:
    """Return the workers that get a bar, and a sentence if some workers get none."""
    workers = len(sums.iterations)
    if workers <= _MOST:
        return list(range(workers)), ""
    order = np.argsort(sums.wait_s, kind="stable")
    picked = order[np.linspace(0, workers - 1, _MOST).round().astype(int)]
    note = (
        f"Shown are {_MOST} of {workers:,} workers, picked evenly from the one that waited least "
        "to the one that waited most."
    )
    return [int(worker) for worker in picked], note


def _bars(spans: dict[str, Floats], names: Sequence[str]) -> list[Plot]:
    whole = np.maximum(sum(spans.values(), np.zeros(len(names))), 1e-12)
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "x": rounded(values),
            "y": list(range(len(names))),
            "marker": {"color": PHASES[phase]},
            "hoverinfo": "text",
            "hovertext": [
                f"{name}: {phase} {seconds(value)} ({100 * value / total:.0f} %)"
                for name, value, total in zip(names, values.tolist(), whole.tolist(), strict=True)
            ],
        }
        for phase, values in spans.items()
    ]
