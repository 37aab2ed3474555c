"""The table with the numbers of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.report.figures.figure import colour
from outpace.report.parts import Cell, Details, Part, Table, Tiles, Words
from outpace.report.read.runs import Run, clock
from outpace.report.target import ReportTarget
from outpace.report.words import (
    SPACE,
    factor,
    interval,
    listed,
    number,
    percent,
    plural,
    seconds,
    size,
)

NOTHING: Final = "–"
NOT_DISTINGUISHABLE: Final = "not distinguishable"

_SEEDS: Final = (
    " All numbers are means over seeds; small ones are 95 % intervals of the mean (Student's t). "
    "Variants are compared seed by seed: not distinguishable means that the interval includes "
    "equality. A run that missed the target counts with the time at which it ended, so that the "
    "mean is a lower bound."
)
_MOST_COLUMNS: Final = 9  # number of columns for which a page of 1280 pixels has room

_Filled = tuple[Cell, list[Cell]]  # the title of a column and its cells

Value = Callable[[Run], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity that a report shows for every run.

    Attributes:
        missing: returns the text for a run without a value.
        note: returns a second line, such as the interval over several seeds.
    """

    title: str
    hint: str
    value: Value
    show: Callable[[float], str]
    missing: Callable[[Run], str] = lambda _: NOTHING
    note: Callable[[Run], str] = lambda _: ""

    def text(self, run: Run) -> str:
        """Return the value of a run as text; `missing` if the run has none."""
        value = self.value(run)
        return self.missing(run) if value is None else self.show(value)


def target_columns(target: ReportTarget | None, first: Run) -> list[Column]:
    """Return the time to the target and, over several seeds, its ratio to the variant `first`."""
    if target is None:
        return []
    ratio = [_ratio_to(first)] if target.given and first.seeds else []
    return [_time_to(target), *ratio]


def _time_to(target: ReportTarget) -> Column:
    origin = "of the configuration" if target.given else "derived from what every run reached"

    def missing(run: Run) -> str:
        bound = run.compared.time_to_target_s.mean
        if target.given and bound is not None:
            return f"at least {seconds(bound)}"
        return "not reached" if target.applies_to(run) else NOTHING

    def note(run: Run) -> str:
        if late := sum(target.reached_s(each) is None for each in run.seeds):
            return f"{late} of {len(run.seeds)} missed it"
        return interval(run.compared.time_to_target_s, seconds) if target.given else ""

    return Column(
        f"Time to{SPACE}{target.title}",
        f"time until an evaluation first showed {target.words}, the target {origin}",
        target.reached_s,
        seconds,
        missing,
        note,
    )


def _ratio_to(first: Run) -> Column:
    def value(run: Run) -> float | None:
        bound = run is not first and (run.compared.missed or first.compared.missed)
        return None if bound else run.compared.ratio_to_first.mean

    def missing(run: Run) -> str:
        ratio = run.compared.ratio_to_first.mean
        if ratio is None:
            return NOTHING
        return f"at {'least' if run.compared.missed else 'most'} {factor(ratio)}"

    def note(run: Run) -> str:
        if run is first:
            return ""
        alike = [NOT_DISTINGUISHABLE] if run.compared.distinguishable is False else []
        return "\n".join([interval(run.compared.ratio_to_first, factor), *alike]).strip()

    return Column(
        f"Time / {first.name}",
        f"time to the target divided by the time of {first.name}, seed by seed (geometric mean)",
        value,
        factor,
        missing=missing,
        note=note,
    )


def _accuracy_note(run: Run) -> str:
    said = interval(run.compared.accuracy, percent)
    by_accuracy = run.compared.time_to_target_s.mean is None
    alike = by_accuracy and run.compared.distinguishable is False
    return f"{said}\n{NOT_DISTINGUISHABLE}" if alike else said


def _of(*keys: str) -> Value:
    return lambda run: run.number(*keys)


def gradients_per_s(run: Run) -> float | None:
    """Return the applied gradients per second of the whole run."""
    gradients, time_s = run.number("gradients_applied"), run.time_s
    return None if gradients is None or not time_s else gradients / time_s


def _count(value: float) -> str:
    return f"{value:,.0f}"


_STALENESS: Final = "updates of the parameters between a gradient's read and its application"
_GOODPUT: Final = "gradients per second, divided by those of the same run without failures"
_OVERLAP: Final = "share of the time of all-reduces in which the worker computed"

COLUMNS: Final = (
    Column(
        "Accuracy",
        "at the end, on the test set",
        _of("accuracy"),
        percent,
        note=_accuracy_note,
    ),
    Column("Train loss", "at the end", _of("train_loss"), number),
    Column("Virtual time", "of the run", _of("virtual_time_s"), seconds),
    Column("Wall time", "of the run", _of("wall_time_s"), seconds),
    Column("Gradients/s", "applied per second", gradients_per_s, number),
    Column("Goodput", _GOODPUT, _of("faults", "goodput"), percent),
    Column("Waiting", "share of the workers' time", lambda run: run.waiting_share, percent),
    Column("Staleness, mean", _STALENESS, _of("staleness", "mean"), number),
    Column("Sent", "by workers and servers", _of("bytes_sent"), size),
    Column("Gradients", "applied to the parameters", _of("gradients_applied"), _count),
    Column("Synchronizations", "all-reduces among the workers", _of("synchronizations"), _count),
    Column("Overlap", _OVERLAP, _of("overlap_fraction"), percent),
)


def summary_of_runs(runs: Sequence[Run], target: ReportTarget | None) -> list[Part]:
    """Return a table with a row per run, without the columns that are empty for all runs.

    The columns about the target come first. Columns for which a page has no room are in a second
    table, which is folded up.
    """
    first = list(_filled(target_columns(target, runs[0]), runs))
    first.append((Cell("Status", look="state"), [_status(run) for run in runs]))
    # settings that the label of the strategy does not contain
    if any(run.name.lower() != run.kind for run in runs):
        words = [Cell(run.kind, look="words") for run in runs]
        first.append((Cell("Strategy", look="words"), words))
    rest = list(_filled(COLUMNS, runs))
    room = _MOST_COLUMNS - len(first)
    legend = f"{_times(runs)}.{_SEEDS if runs[0].seeds else ''}"
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
            pairs = zip(texts, runs, strict=True)
            cells = [Cell(text, note=column.note(run)) for text, run in pairs]
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
        "Wall time and virtual time are not comparable"
    )
