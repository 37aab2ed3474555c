"""Shows what failures cost: how much of the time was useful, and what took the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.figures.figure import Figure, Plot, axis, bars, lanes, rounded, view
from outpace.report.parts import Part, Section, Table
from outpace.report.read.runs import Run
from outpace.report.words import escaped, label, listed, percent

_USEFUL: Final = "useful"
_WAITING: Final = "waiting for others"
# Parts of the time, in the order of the bar: colour, and what it is.
_PARTS: Final = {
    _USEFUL: ("#009e73", "the time that the same run takes without failures and checkpoints"),
    "checkpoints": ("#56b4e9", "servers stood still to write"),
    "detection": ("#e69f00", "until a loss was known"),
    "restart": ("#d55e00", "until the successor began"),
    "repeated": ("#cc79a7", "work that was done again"),
    "standing": ("#8a8f98", "workers stood still"),
    _WAITING: ("#0072b2", "for a process that was away, or slow"),
}
_KINDS: Final = ("crash", "pause", "slow")
_LEAD: Final = (
    "Goodput: gradients per second that are in the result, over those of the same run without "
    "failures and checkpoints. The other parts are shares of the workers' time; waiting for others "
    "is what remains: the waits that failures added. Waits that there would be without failures "
    "are part of the useful time."
)


def what_failures_cost(runs: Sequence[Run]) -> Section | None:
    """Return the section of the runs that were simulated with failures; None if none was."""
    shown = [run for run in runs if parts_of(run)]
    if not shown:
        return None
    rows = [
        [
            run.name,
            _happened(run),
            f"{run.number('restarts') or 0:.3g}",
            f"{run.number('updates_lost') or 0:.3g}",
            percent(parts_of(run)[_USEFUL]),
        ]
        for run in shown
    ]
    head = ["Run", "What happened", "Restarts", "Updates lost", "Goodput"]
    body: list[Part] = [_figure(shown), Table("faults-table", head, rows)]
    return Section("faults", "What failures cost", body, _LEAD)


def parts_of(run: Run) -> dict[str, float]:
    """Return the share of each part of the time, in [0, 1]; empty if the run says nothing of it.

    They add up to 1, or to more where workers lost time that delayed nothing.
    """
    goodput, time_s = run.number("faults", "goodput"), run.time_s
    if goodput is None or not time_s:
        return {}
    lost = {cause: run.number("faults", "lost_s", cause) for cause in _PARTS}
    parts = {cause: lost_s / time_s for cause, lost_s in lost.items() if lost_s is not None}
    return {
        _USEFUL: goodput,
        **parts,
        _WAITING: max(0.0, 1.0 - goodput - sum(parts.values())),
    }


def _happened(run: Run) -> str:
    counts = {kind: run.number("faults", "happened", kind) for kind in _KINDS}
    return listed([f"{count:.3g} × {kind}" for kind, count in counts.items() if count]) or "nothing"


def _figure(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-faults`: a bar per run."""
    found = [parts_of(run) for run in runs]
    traces = []
    for part, (colour, meaning) in _PARTS.items():
        values = [100.0 * parts.get(part, 0.0) for parts in found]
        hover = [
            f"{escaped(run.name)}: {part} {value:.3g} % ({meaning})"
            for run, value in zip(runs, values, strict=True)
        ]
        lane, marker = list(range(len(runs))), {"color": colour}
        traces.append(bars(part, rounded(values), lane, hover, marker, orientation="h"))
    layout: Plot = {
        "xaxis": axis("share of the time (%)", rangemode="tozero"),
        "yaxis": lanes([label(run.name) for run in runs]),
        "barmode": "stack",
        "bargap": 0.35,
    }
    return Figure(
        "figure-faults",
        "Share of the time of each run that was useful, and what took the rest",
        {(): view([trace for trace in traces if any(trace.x)], layout)},
        height=170 + 38 * len(runs),
        tall=True,
    )
