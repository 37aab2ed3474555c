"""Reads the traces of a drawn timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outpace.report.figures.timeline import timeline
from outpace.report.read.runs import Run, read_runs
from outpace.report.read.traces import Totals, totals_of


def drawn(*folders: Path) -> list[Any]:
    """Return the views of the timeline: each run's longest wait, then its first iterations."""
    runs = read_runs(folders)
    return list(timeline(runs, [totals_of(run) for run in runs]).views.values())


def totals(folder: Path) -> tuple[Run, Totals]:
    (run,) = read_runs([folder])
    sums = totals_of(run)
    assert sums is not None
    return run, sums


def by_name(view: Any) -> dict[str, Any]:
    return {trace["name"]: trace for trace in view.traces if "name" in trace}
