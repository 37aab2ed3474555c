"""The numbers of every run side by side, the best of each column marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from outpace.report.columns import COLUMNS, NOTHING, Column, Value, target_columns
from outpace.report.figures.figure import colour
from outpace.report.parts import Cell, Details, Part, Table, Tiles, Words
from outpace.report.read.runs import Run, clock
from outpace.report.target import ReportTarget
from outpace.report.words import listed, plural
from outpace.support.estimates import difference_of

_BEST: Final = (
    "★ best of its column among the complete runs. Not marked are columns in which all runs are "
    "alike, columns without a better end, and totals if the runs applied different numbers of "
    "gradients. "
)
_SEEDS: Final = (
    " All numbers are means over seeds; small ones are 95 % intervals of the mean (Student's t). "
    "Variants are compared seed by seed: not distinguishable means that the interval includes "
    "equality. A run that missed the target counts with the time at which it ended, so that the "
    "mean is a lower bound. Best is only a variant whose interval of the difference to every "
    "other one excludes equality."
)
_MOST_COLUMNS: Final = 9  # for which a page of 1280 pixels has room

_Filled = tuple[Cell, list[Cell]]  # the title of a column and its cells


def summary_of_runs(runs: Sequence[Run], target: ReportTarget | None) -> list[Part]:
    """Return a table with a row per run, without the columns that are empty for all runs.

    The answer, about the target, comes first. Columns for which a page has no room follow in a
    second table, which is folded up.
    """
    first = list(_filled(target_columns(target, runs[0]), runs))
    first.append((Cell("Status", look="state"), [_status(run) for run in runs]))
    if any(run.name.lower() != run.kind for run in runs):  # not named by the strategy
        words = [Cell(run.kind, look="words") for run in runs]
        first.append((Cell("Strategy", look="words"), words))
    rest = list(_filled(COLUMNS, runs))
    room = _MOST_COLUMNS - len(first)
    marked = any(cell.look == "best" for _, cells in [*first, *rest] for cell in cells)
    legend = f"{_BEST if marked else ''}{_times(runs)}.{_SEEDS if runs[0].seeds else ''}"
    if target is not None and not target.given:
        legend += f" The target, {target.title}, is derived from the results: every run reached it."
    parts: list[Part] = [_table("summary-table", runs, first + rest[:room])]
    parts.append(Words(legend, "legend"))
    if rest[room:]:
        parts.append(Details("More numbers", [_table("more-table", runs, rest[room:])]))
    return parts


def summary_of_run(run: Run, target: ReportTarget | None) -> list[Part]:
    """Return the quantities of a single run."""
    answers = _filled(target_columns(target, run), [run])
    filled = [*answers, (Cell("Status"), [_status(run)]), *_filled(COLUMNS, [run])]
    hints = {title.text: title.hint for title, _ in filled}
    parts: list[Part] = [Tiles({title.text: cell for title, (cell,) in filled}, hints)]
    if run.error:
        parts.append(Words(run.error, "notice"))
    return [*parts, Words(f"{_times([run])}.", "legend")]


def _filled(columns: Sequence[Column], runs: Sequence[Run]) -> Iterator[_Filled]:
    """Yield the title and the cells of each column that is not empty for all runs."""
    for column in columns:
        texts = [column.text(run) for run in runs]
        if any(text != NOTHING for text in texts):
            best = best_of(column, runs)
            looks = ["best" if place in best else "" for place in range(len(runs))]
            each = zip(texts, runs, looks, strict=True)
            cells = [Cell(text, note=column.note(run), look=look) for text, run, look in each]
            yield Cell(column.title, hint=column.hint), cells


def _table(id: str, runs: Sequence[Run], filled: Sequence[_Filled]) -> Table:
    titles, cells = zip(*filled, strict=True)
    names = [Cell(run.name, colour=colour(place)) for place, run in enumerate(runs)]
    head = ["Variant" if runs[0].seeds else "Run", *titles]
    return Table(id, head, zip(names, *cells, strict=True))


def _status(run: Run) -> Cell:
    kind = "failed" if run.status.endswith("failed") else "partial"
    kind = "complete" if run.complete else kind
    count = plural(len(run.seeds), "seed") if run.seeds else ""
    return Cell(run.status, note=count, status=kind, look="state")


def _times(runs: Sequence[Run]) -> str:
    """Say whether times are wall time or virtual time."""
    if clock(runs) != "time":
        return f"Times are {clock(runs)}"
    names = listed([run.name for run in runs if run.real])
    return (
        f"Times of {names} are wall time, on real processes; the others are virtual time. "
        "Wall time and virtual time are not comparable, so no best time is marked"
    )


def best_of(column: Column, runs: Sequence[Run]) -> set[int]:
    """Return the indices of the complete runs that are best in a column.

    The set is empty if the column has no better end, if fewer than two runs can be compared, or
    if all runs that can be compared have the same value. Over several seeds, it is empty too if
    the best variant cannot be told apart from every worse one.
    """
    complete = {place: column.value(run) for place, run in enumerate(runs) if run.complete}
    values = {place: value for place, value in complete.items() if value is not None}
    if column.better is None or len(set(values.values())) < 2:
        return set()
    compared = [runs[place] for place in values]
    if column.among == "same work" and not _same_work(compared):
        return set()
    if column.among == "same clock" and clock(compared) == "time":
        return set()
    best = min(values.values()) if column.better == "low" else max(values.values())
    places = {place for place, value in values.items() if value == best}
    others = values.keys() - places
    clear = (_apart(column.value, runs[one], runs[other]) for one in places for other in others)
    return places if all(clear) else set()


def _apart(value: Value, one: Run, other: Run) -> bool:
    """True if the 95 % interval of the difference over common seeds excludes equality.

    Also true for runs with one seed: they have no interval.
    """
    if not one.seeds:
        return True
    found, others = (
        {each.setting("seed"): known for each in run.seeds if (known := value(each)) is not None}
        for run in (one, other)
    )
    common = [seed for seed in found if seed in others]
    return difference_of([found[s] for s in common], [others[s] for s in common]).excludes(0.0)


def _same_work(runs: Sequence[Run]) -> bool:
    """True if the numbers of applied gradients differ by at most 1 %."""
    counts = [run.number("gradients_applied") or 0.0 for run in runs]
    return max(counts) - min(counts) <= 0.01 * max(counts)
