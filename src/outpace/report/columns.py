"""The quantities that a report gives for every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from outpace.report.read.runs import Run
from outpace.report.target import ReportTarget
from outpace.report.words import SPACE, factor, interval, number, percent, seconds, size

NOTHING: Final = "–"

Value = Callable[[Run], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity that a report shows for every run.

    Attributes:
        better: whether low or high values are better; None if neither is.
        same_work: mark the best run only if all applied about the same number of gradients.
        one_clock: mark the best run only if all runs are in virtual time, or all on real processes.
        missing: returns the text for a run without a value.
        spread: returns lines below the value: over several seeds, its interval.
        answers: it is about the target, and so comes first.
        by_ratio: tell values over seeds apart by their ratios, not their differences.
    """

    title: str
    hint: str
    value: Value
    show: Callable[[float], str]
    better: Literal["low", "high"] | None = None
    same_work: bool = False
    one_clock: bool = False
    missing: Callable[[Run], str] = lambda _: NOTHING
    spread: Callable[[Run], str] = lambda _: ""
    by_ratio: bool = False
    answers: bool = False

    def text(self, run: Run) -> str:
        """Return the value of a run in words; NOTHING if it has none."""
        value = self.value(run)
        return self.missing(run) if value is None else self.show(value)


def columns(target: ReportTarget | None, first: Run) -> list[Column]:
    """Return the columns; the first one is the time to the target, if there is one.

    Over several seeds, the next one is the ratio to the variant `first`.
    """
    to_target = [] if target is None else [_time_to(target)]
    if target is not None and target.given and first.seeds:
        to_target.append(_ratio_to(first))
    return [*to_target, *_COLUMNS]


def _time_to(target: ReportTarget) -> Column:
    origin = "of the configuration" if target.given else "derived from what every run reached"

    def missing(run: Run) -> str:
        bound = run.estimate("time_to_target_s").mean
        if target.given and bound is not None:
            return f"at least {seconds(bound)}"
        return "not reached" if target.applies_to(run) else NOTHING

    def spread(run: Run) -> str:
        if late := sum(target.reached_s(each) is None for each in run.seeds):
            return f"{late} of {len(run.seeds)} missed it"
        return interval(run.estimate("time_to_target_s"), seconds) if target.given else ""

    return Column(
        f"Time to{SPACE}{target.title}",
        f"time until an evaluation first showed {target.words}, the target {origin}",
        target.reached_s,
        seconds,
        "low",
        one_clock=True,
        missing=missing,
        spread=spread,
        by_ratio=True,
        answers=True,
    )


def _ratio_to(first: Run) -> Column:
    def value(run: Run) -> float | None:
        bound = run is not first and (missed(run) or missed(first))
        return None if bound else run.estimate("ratio_to_first").mean

    def missing(run: Run) -> str:
        ratio = run.estimate("ratio_to_first").mean
        if ratio is None:
            return NOTHING
        return f"at {'least' if missed(run) else 'most'} {factor(ratio)}"

    def spread(run: Run) -> str:
        if run is first:
            return ""
        alike = [] if run.distinguishable is not False else ["not distinguishable"]
        return "\n".join([interval(run.estimate("ratio_to_first"), factor), *alike]).strip()

    return Column(
        f"Time / {first.name}",
        f"time to the target over that of {first.name}, seed by seed (geometric mean)",
        value,
        factor,
        missing=missing,
        spread=spread,
        answers=True,
    )


def missed(run: Run) -> bool:
    """True if runs of the variant missed the target, so that its time is a lower bound."""
    return run.missed > 0


def _accuracy(run: Run) -> str:
    found = run.estimate("accuracy")
    if found.low is not None and found.high is not None:  # Student's t knows no bounds
        found = replace(found, low=max(0.0, found.low), high=min(1.0, found.high))
    said = interval(found, percent)
    if run.distinguishable is False and not run.estimate("time_to_target_s").mean:
        return f"{said}\nnot distinguishable"
    return said


def _of(*keys: str) -> Value:
    return lambda run: run.number(*keys)


def _count(value: float) -> str:
    return f"{value:,.0f}"


_COLUMNS: Final = (
    Column(
        "Accuracy",
        "at the end, on the test set",
        lambda run: run.estimate("accuracy").mean if run.compared else run.number("accuracy"),
        percent,
        "high",
        spread=_accuracy,
    ),
    Column("Train loss", "at the end", _of("train_loss"), number, "low"),
    Column(
        "Virtual time", "of the whole run", _of("virtual_time_s"), seconds, "low", same_work=True
    ),
    Column(
        "Wall time",
        "of the whole run, on real processes",
        _of("wall_time_s"),
        seconds,
        "low",
        same_work=True,
    ),
    Column(
        "Gradients/s",
        "applied gradients per second of the whole run",
        lambda run: run.gradients_per_s,
        number,
        "high",
        one_clock=True,
    ),
    Column(
        "Goodput",
        "gradients per second, over those of the same run without failures and checkpoints",
        _of("faults", "goodput"),
        percent,
        "high",
    ),
    Column(
        "Waiting",
        "share of the workers' time",
        lambda run: run.waiting_share,
        percent,
        "low",
        one_clock=True,
    ),
    Column(
        "Staleness, mean",
        "updates of the parameters between a gradient's read and its application",
        _of("staleness", "mean"),
        number,
        "low",
    ),
    Column(
        "Staleness, max",
        "updates, of any gradient at any server",
        _of("staleness", "max"),
        _count,
        "low",
    ),
    Column(
        "Delayed pulls",
        "requests for parameters that a server held back, over all servers",
        _of("delayed_pulls"),
        _count,
        "low",
        same_work=True,
    ),
    Column("Compute", "mean per worker", _of("seconds", "compute"), seconds),
    Column(
        "Communicate",
        "mean per worker",
        _of("seconds", "communicate"),
        seconds,
        "low",
        same_work=True,
        one_clock=True,
    ),
    Column(
        "Wait",
        "mean per worker",
        _of("seconds", "wait"),
        seconds,
        "low",
        same_work=True,
        one_clock=True,
    ),
    Column(
        "Sent", "bytes sent by workers and servers", _of("bytes_sent"), size, "low", same_work=True
    ),
    Column("Gradients", "applied to the parameters", _of("gradients_applied"), _count),
    Column(
        "Counted",
        "gradients that counted in an iteration, on average; the other workers were cut off",
        _of("cut_offs", "mean_count"),
        number,
    ),
    Column("Synchronizations", "all-reduces among the workers", _of("synchronizations"), _count),
    Column(
        "Window",
        "iterations of a worker per synchronization, on average",
        _of("mean_window"),
        number,
    ),
    Column(
        "Overlap",
        "share of the time of all-reduces in which the worker computed",
        _of("overlap_fraction"),
        percent,
        "high",
        one_clock=True,
    ),
    Column(
        "Collectives",
        "mean per worker, in collectives that the script called itself, such as barriers",
        _of("collectives", "seconds"),
        seconds,
        "low",
        same_work=True,
        one_clock=True,
    ),
    Column(
        "Abstained",
        "pushes without a gradient: the worker was cut off or stopped, the gradient was not "
        "finite, or the step was skipped",
        lambda run: run.number("pushes_abstained") or None,
        _count,
    ),
    Column(
        "Skipped pushes",
        "whose gradient the worker chose not to send",
        lambda run: run.number("pushes_skipped") or None,
        _count,
    ),
    Column(
        "Skipped pulls",
        "iterations after which the worker chose not to ask for parameters",
        lambda run: run.number("pulls_skipped") or None,
        _count,
    ),
)
