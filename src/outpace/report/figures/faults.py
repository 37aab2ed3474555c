"""Shows what failures cost: how much of the time was useful, and what took the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.figures.figure import Figure, Plot, axis, bars, lanes, rounded, view
from outpace.report.parts import Part, Section, Table
from outpace.report.read.runs import Run
from outpace.report.words import escaped, label, percent, seconds

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
_KINDS: Final = {  # one, several
    "crash": ("crash", "crashes"),
    "pause": ("pause", "pauses"),
    "slow": ("slow period", "slow periods"),
    "partition": ("partition", "partitions"),
    "loss": ("lost message", "lost messages"),
}
_LEAD: Final = (
    "Goodput: gradients per second that are in the result, over those of the same run without "
    "failures and checkpoints. The other parts are shares of the workers' time; waiting for others "
    "is what remains: the waits that failures added. Waits that there would be without failures "
    "are part of the useful time. The curves above show what failures cost until a loss or an "
    "accuracy is reached."
)


def what_failures_cost(runs: Sequence[Run]) -> Section | None:
    """Return the section of the runs that were simulated with failures; None if none was."""
    shown = [run for run in runs if parts_of(run)]
    if not shown:
        return None
    rows = [[run.name, _happened(run), *_costs(run)] for run in shown]
    head = ["Run", "What happened", "Restarts", "Updates lost", "Goodput", "Time lost per worker"]
    body: list[Part] = [_figure(shown), Table("faults-table", head, rows)]
    return Section("faults", "What failures cost", body, _LEAD)


def parts_of(run: Run) -> dict[str, float]:
    """Return the share of each part of the time, in [0, 1]; empty if the run says nothing of it.

    They add up to 1, or to more where workers lost time that delayed nothing.
    """
    goodput, time_s = run.number("faults", "goodput"), run.time_s
    if goodput is None or not time_s:
        return {}
    parts = {_USEFUL: goodput}
    for cause in _PARTS:
        lost_s = run.number("faults", "lost_s", cause)
        if lost_s is not None:
            parts[cause] = lost_s / time_s
    parts[_WAITING] = max(0.0, 1.0 - sum(parts.values()))
    return parts


def _figure(runs: Sequence[Run]) -> Figure:
    """Return the figure `figure-faults`: a bar per run."""
    found = [parts_of(run) for run in runs]
    lane = list(range(len(runs)))
    traces = []
    for part, (colour, meaning) in _PARTS.items():
        values = [100.0 * parts.get(part, 0.0) for parts in found]
        if not any(values):
            continue
        words = [
            f"{escaped(run.name)}: {part} {value:.3g} % ({meaning})"
            for run, value in zip(runs, values, strict=True)
        ]
        marker = {"color": colour}
        traces.append(bars(part, rounded(values), lane, words, marker, orientation="h"))
    layout: Plot = {
        "xaxis": axis("share of the time (%)", rangemode="tozero"),
        "yaxis": lanes([label(run.name) for run in runs]),
        "barmode": "stack",
        "bargap": 0.35,
    }
    return Figure(
        "figure-faults",
        "Share of the time of each run that was useful, and what took the rest",
        {(): view(traces, layout)},
        height=170 + 38 * len(runs),
        tall=True,
    )


def _happened(run: Run) -> str:
    counts = {kind: run.number("faults", "happened", kind) or 0.0 for kind in _KINDS}
    said = [f"{count:.3g} {_KINDS[kind][count != 1.0]}" for kind, count in counts.items() if count]
    mean = " (mean)" if run.seeds and said else ""
    return f"{', '.join(said) or 'nothing'}{mean}"


def _costs(run: Run) -> list[str]:
    parts = parts_of(run)
    lost = [part for part in parts if part not in (_USEFUL, _WAITING) and parts[part]]
    time_s = run.time_s or 0.0
    said = [f"{part} {seconds(parts[part] * time_s)}" for part in lost]
    return [
        f"{run.number('restarts') or 0:.3g}",
        f"{run.number('updates_lost') or 0:.3g}",
        percent(parts[_USEFUL]),
        ", ".join(said) or "none",
    ]
