"""Reads the traces of a drawn timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outpace.report.figures.timeline import timeline
from outpace.report.page import _totals
from outpace.report.read.events import TraceTotals
from outpace.report.read.runs import Run, read_runs


def drawn(*folders: Path) -> list[Any]:
    """The views of the timeline: of each run its first iterations, then its longest wait."""
    runs = read_runs(folders)
    return list(timeline(runs, [_totals(run) for run in runs]).views)


def totals(folder: Path) -> tuple[Run, TraceTotals]:
    (run,) = read_runs([folder])
    sums = _totals(run)
    assert sums is not None
    return run, sums


def by_name(view: Any) -> dict[str, Any]:
    return {trace["name"]: trace for trace in view.traces if "name" in trace}
