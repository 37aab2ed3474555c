"""The part of a report that says what slows the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.errors import ConfigError
from outpace.report.explaining.explained import explained
from outpace.report.explaining.explanation import Cause, Explanation
from outpace.report.explaining.words import nothing, pattern_words, sentences
from outpace.report.parts import Bullets, Section, Table, Words
from outpace.report.read.runs import Run
from outpace.report.words import percent, seconds

_MOST: Final = 5_000  # iterations that are compared
_CAUSES: Final = 3  # of each run, where there are several
_LEAD: Final = (
    "Run times within an iteration are compared with each other. If all are alike, the chance that "
    "any is named is at most 1{space}%. Seconds are those by which the run was longer because of "
    "it. `outpace explain RUN` says what a repair would gain."
).replace("{space}", "\N{NO-BREAK SPACE}")


def explaining(runs: Sequence[Run]) -> Section | None:
    """Return the section of these runs; None if no run can be explained."""
    found: list[tuple[Run, Explanation]] = []
    for run in runs:
        try:
            found.append((run, explained(run.trace.parent, _MOST)))
        except ConfigError:
            continue  # what is wrong with the file is said elsewhere
    if not found:
        return None
    if not any(explanation.causes or explanation.faster for _, explanation in found):
        return Section("explanation", "Who slows the run", [Words(_nothing(found))])
    if len(runs) == 1:
        ((_, explanation),) = found
        return Section("explanation", "Who slows the run", [Bullets(sentences(explanation))], _LEAD)
    rows = [
        [run.name if place == 0 else "", *cells]
        for run, explanation in found
        for place, cells in enumerate(_rows(explanation))
    ]
    head = ["Run", "Slow", "Costs", "How"]
    return Section("explanation", "Who slows the runs", [Table("causes", head, rows)], _LEAD)


def _rows(found: Explanation) -> list[list[str]]:
    if not found.causes and found.faster is None:
        return [["none", "", ""]]
    if not found.causes:
        return [[sentences(found)[0], "", ""]]
    rows = [_row(cause) for cause in found.causes[:_CAUSES]]
    if more := found.causes[_CAUSES:]:
        lost_s = sum(cause.lost_s for cause in more)
        rows.append([f"{len(more):,} more", seconds(lost_s), ""])
    return rows


def _row(cause: Cause) -> list[str]:
    cost = f"{seconds(cause.lost_s)} ({percent(cause.share, 0)})"
    return [cause.name, cost, pattern_words(cause)]


def _nothing(found: Sequence[tuple[Run, Explanation]]) -> str:
    """Return the sentence of runs without causes."""
    return nothing(max((explanation for _, explanation in found), key=lambda one: one.iterations))
