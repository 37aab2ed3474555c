"""The part of a report that says when runs were interrupted, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.columns import NOTHING
from outpace.report.parts import Part, Section, Table, Words
from outpace.report.read.interruptions import Interruption, interruptions
from outpace.report.read.runs import Run
from outpace.report.words import plural, seconds

_MOST: Final = 30  # rows of each run
_LEAD: Final = (
    "A process that was lost is back when its successor begins with its work. Where all processes "
    "began again, the work since the checkpoint was done again."
)
_ANEW: Final = (
    " A script that keeps nothing began anew: its work since the checkpoint is lost, and counts in "
    "the lost updates."
)


def interrupted(runs: Sequence[Run]) -> Section | None:
    """Return the section; None if no run was interrupted."""
    found = [(run, each) for run in runs if (each := interruptions(run))]
    if not found:
        return None
    named = len(runs) > 1
    rows, more = [], []
    for run, each in found:
        rows += [_row(run, one, named=named) for one in each[:_MOST]]
        if rest := len(each) - _MOST:
            of = f" of {run.name}" if named else ""
            more += [f"{plural(rest, 'more interruption')}{of}"] if rest > 0 else []
    head = ["At", "What happened", "Back after", "From checkpoint", "Work done again"]
    shown: list[Part] = [Table("interruptions", ["Run", *head] if named else head, rows)]
    if more:
        shown.append(Words(f"{'; '.join(more)}.", "legend"))
    anew = any(one.anew for _, each in found for one in each)
    return Section("interrupted", "Interruptions", shown, _LEAD + _ANEW * anew)


def _row(run: Run, each: Interruption, *, named: bool) -> list[str]:
    what = f"{each.who} was lost" if each.who else "the run had ended, and was resumed"
    back = NOTHING
    if each.who:
        back = "never" if each.away_s is None else seconds(each.away_s)
    number = NOTHING if each.checkpoint is None else f"{each.checkpoint}, all processes"
    again = seconds(each.repeated_s) if each.repeated_s else NOTHING
    if each.anew:
        again = f"none: {plural(each.anew, 'script')} began anew"
    return [*([run.name] if named else []), seconds(each.at_s), what, back, number, again]
