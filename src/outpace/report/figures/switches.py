"""Shows when an adaptive strategy went from one setting to another, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outpace.report.frame import Section, table
from outpace.report.read.runs import Run
from outpace.report.words import escaped, seconds

_MOST: Final = 40  # rows of one run
_LEAD: Final = (
    "The rule of the strategy observes the run and orders another setting. A quorum is the number "
    "of gradients that an iteration waits for; with a grace it ends at the latest so long after a "
    "quarter of the workers have pushed. Without servers, every n is the number of steps "
    "from one average to the next."
)


def switches(runs: Sequence[Run]) -> Section | None:
    """Return the section about the switches of adaptive runs; None if there were none."""
    shown = [(run, found) for run in runs if (found := _switches_of(run))]
    if not shown:
        return None
    rows = []
    for run, found in shown:
        for each in found[:_MOST]:
            time_s = each.get("time_s")
            when = seconds(time_s) if isinstance(time_s, int | float) else "?"
            told = [str(each.get(key, "?")) for key in ("iteration", "from", "to", "reason")]
            rows.append([escaped(text) for text in (run.name, when, *told)])
        if (more := len(found) - _MOST) > 0:
            rows.append([escaped(run.name), "", "", "", "", f"and {more} more, in summary.json"])
    head = ["Run", "At", "Iteration", "From", "To", "Reason"]
    return Section("switches", "Switches", [table("switches-table", head, rows)], _LEAD)


def _switches_of(run: Run) -> list[Mapping[str, Any]]:
    found = run.summary.get("switches")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
