"""The quantities that a report gives for every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from outpace.report.read.runs import Run
from outpace.report.target import ReportTarget
from outpace.report.words import SPACE, factor, interval, number, percent, seconds, size

NOTHING: Final = "–"
NOT_DISTINGUISHABLE: Final = "not distinguishable"

Value = Callable[[Run], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity that a report shows for every run.

    Attributes:
        better: whether low or high values are better; None if neither is.
        among: runs between which the best is marked: all runs; only runs on the same clock,
            virtual time or wall time; only runs that applied about as many gradients.
        missing: returns the text for a run without a value.
        note: returns a second line, such as the interval over several seeds.
    """

    title: str
    hint: str
    value: Value
    show: Callable[[float], str]
    better: Literal["low", "high"] | None = None
    among: Literal["all", "same clock", "same work"] = "all"
    missing: Callable[[Run], str] = lambda _: NOTHING
    note: Callable[[Run], str] = lambda _: ""

    def text(self, run: Run) -> str:
        """Return the value of a run in words; `missing` if it has none."""
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
        "low",
        "same clock",
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
        f"time to the target over that of {first.name}, seed by seed (geometric mean)",
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
_GOODPUT: Final = "gradients per second, over those of the same run without failures"
_OVERLAP: Final = "share of the time of all-reduces in which the worker computed"

COLUMNS: Final = (
    Column(
        "Accuracy",
        "at the end, on the test set",
        _of("accuracy"),
        percent,
        "high",
        note=_accuracy_note,
    ),
    Column("Train loss", "at the end", _of("train_loss"), number, "low"),
    Column("Virtual time", "of the run", _of("virtual_time_s"), seconds, "low", "same work"),
    Column("Wall time", "of the run", _of("wall_time_s"), seconds, "low", "same work"),
    Column("Gradients/s", "applied per second", gradients_per_s, number, "high", "same clock"),
    Column("Goodput", _GOODPUT, _of("faults", "goodput"), percent, "high"),
    Column(
        "Waiting",
        "share of the workers' time",
        lambda run: run.waiting_share,
        percent,
        "low",
        "same clock",
    ),
    Column("Staleness, mean", _STALENESS, _of("staleness", "mean"), number, "low"),
    Column("Sent", "by workers and servers", _of("bytes_sent"), size, "low", "same work"),
    Column("Gradients", "applied to the parameters", _of("gradients_applied"), _count),
    Column("Synchronizations", "all-reduces among the workers", _of("synchronizations"), _count),
    Column("Overlap", _OVERLAP, _of("overlap_fraction"), percent, "high", "same clock"),
)
