"""The numbers of every run side by side, the best of each column marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from outpace.report.best import best_of
from outpace.report.columns import NOTHING, Column, columns
from outpace.report.figures.figure import colour
from outpace.report.parts import Cell, Details, Part, Table, Tiles, Words
from outpace.report.read.runs import Run, clock, strategies
from outpace.report.target import ReportTarget
from outpace.report.words import listed, plural

_BEST: Final = (
    "★ best of its column among the complete runs. Not marked are "
    "columns in which all runs are alike, columns without a better end, and totals if the runs "
    "applied different numbers of gradients. "
)
_MEANS: Final = (
    "Compute, communicate and wait are means per worker; staleness is counted in updates of the "
    "parameters."
)
_MOST_COLUMNS: Final = 10  # for which a page of 1280 pixels has room
_SEEDS: Final = (
    " All numbers are means over seeds; small ones are 95 % intervals of the mean (Student's t). "
    "Variants are compared seed by seed: not distinguishable means that the interval includes "
    "equality. A run that missed the target counts with the time at which it ended, so that the "
    "mean is a lower bound. Best is only a variant whose interval of the difference to every "
    "other one excludes equality."
)


def summary_of_runs(runs: Sequence[Run], target: ReportTarget | None) -> list[Part]:
    """Return a table with a row per run, without the columns that are empty for all runs.

    Columns for which a page has no room follow in a second table, which is folded up.
    """
    every = columns(target, runs[0])
    shown = [(c, best_of(c, runs)) for c in every if any(c.text(run) != NOTHING for run in runs)]
    answers = sum(column.answers for column, _ in shown)  # about the target; they are first
    named = all(run.name.lower() == run.kind for run in runs)  # runs are named by strategy
    words = None if named else strategies(runs)
    most = _MOST_COLUMNS - 2 * (not named)  # the words need more room
    said = [(Cell("Status", look="state"), [_status(run) for run in runs])]
    if words is not None:
        said.append((Cell("Strategy", look="words"), [Cell(text, look="words") for text in words]))
    first = [*_columns(runs, shown[:answers]), *said, *_columns(runs, shown[answers:most])]
    best = _BEST if any(best for _, best in shown) else ""
    legend = f"{best}{_times(runs)}. {_MEANS}{_SEEDS if runs[0].seeds else ''}{_derived(target)}"
    parts: list[Part] = [_table("summary-table", runs, first), Words(legend, "legend")]
    if shown[most:]:
        more = _table("more-table", runs, _columns(runs, shown[most:]))
        parts.append(Details("More numbers", [more]))
    return parts


def _columns(
    runs: Sequence[Run], shown: Sequence[tuple[Column, set[int]]]
) -> Iterator[tuple[Cell, list[Cell]]]:
    """Yield the title and the cells of each column.

    Args:
        shown: the columns, each with the places of its best runs.
    """
    for column, best in shown:
        cells = [_cell(column, run, place in best) for place, run in enumerate(runs)]
        yield Cell(column.title, hint=column.hint), cells


def _table(id: str, runs: Sequence[Run], filled: Iterable[tuple[Cell, list[Cell]]]) -> Table:
    titles, cells = zip(*filled, strict=True)
    names = [Cell(run.name, colour=colour(place)) for place, run in enumerate(runs)]
    head = ["Variant" if runs[0].seeds else "Run", *titles]
    return Table(id, head, zip(names, *cells, strict=True))


def _derived(target: ReportTarget | None) -> str:
    if target is None or target.given:
        return ""
    return f" The target, {target.title}, is derived from the results: every run reached it."


def summary_of_run(run: Run, target: ReportTarget | None) -> list[Part]:
    """Return the quantities of a single run."""
    shown = [column for column in columns(target, run) if column.text(run) != NOTHING]
    filled = list(_columns([run], [(column, set()) for column in shown]))
    answers = sum(column.answers for column in shown)
    filled.insert(answers, (Cell("Status"), [_status(run)]))
    hints = {title.text: title.hint for title, _ in filled}
    parts: list[Part] = [Tiles({title.text: cell for title, (cell,) in filled}, hints)]
    if run.error:
        parts.append(Words(run.error, "notice"))
    return [*parts, Words(f"{_times([run])}. {_MEANS}", "legend")]


def _status(run: Run) -> Cell:
    kind = "failed" if run.status.endswith("failed") else "partial"
    kind = "complete" if run.complete else kind
    count = plural(len(run.seeds), "seed") if run.seeds else ""
    return Cell(run.status, note=count, status=kind, look="state")


def _cell(column: Column, run: Run, best: bool) -> Cell:
    return Cell(column.text(run), note=column.spread(run), look="best" if best else "")


def _times(runs: Sequence[Run]) -> str:
    """Say whether times are wall time or virtual time."""
    if clock(runs) == "time":
        names = listed([run.name for run in runs if run.real])
        return (
            f"Times of {names} are wall time, on real processes; the others are virtual time. "
            "Wall time and virtual time are not comparable, so no best time is marked"
        )
    return "Times are wall time" if runs[0].real else "Times are virtual"
