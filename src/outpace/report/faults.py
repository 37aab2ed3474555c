"""Shows the costs of failures: how much of the time was useful, and how the rest was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.parts import Cell, Row, Section, Table
from outpace.report.read.runs import Run
from outpace.report.words import listed, percent
from outpace.support.words import plural

_USEFUL: Final = "useful"
_WAITING: Final = "waiting for others"
_PARTS: Final = {
    _USEFUL: "the time that the same run takes without failures and checkpoints",
    "detection": "until a loss was known",
    "restart": "until the successor began",
    "repeated": "work that was done again",
    _WAITING: "for a process that was away",
}
_LEAD: Final = (
    "Useful time is goodput: gradients per second that are in the result, divided by those of "
    "the same run without failures and checkpoints. The other parts are shares of the workers' "
    "time; waiting for others is what remains: the waits that failures added. Waits that there "
    "would be without failures are part of the useful time."
)


def what_failures_cost(runs: Sequence[Run]) -> Section | None:
    """Return the section about runs that were simulated with failures; None if there are none."""
    rows: list[Row] = [
        [
            run.name,
            _happened(run),
            f"{run.number('restarts') or 0:.3g}",
            f"{run.number('updates_lost') or 0:.3g}",
            *(percent(parts.get(part, 0.0)) for part in _PARTS),
        ]
        for run in runs
        if (parts := parts_of(run))
    ]
    titles = [Cell(part.capitalize(), hint=meaning) for part, meaning in _PARTS.items()]
    head: Row = ["Run", "Lost", "Restarts", "Updates lost", *titles]
    table = Table("faults-table", head, rows)
    return Section("faults", "What failures cost", [table], _LEAD) if rows else None


def parts_of(run: Run) -> dict[str, float]:
    """Return the share of each part of the time, in [0, 1]; empty if the run does not have them.

    They add up to 1, or to more if workers lost time that did not delay the run.
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
    counts = {role: run.number("faults", f"{role}_losses") for role in ("worker", "server")}
    return listed([plural(int(n), role) for role, n in counts.items() if n]) or "nothing"
