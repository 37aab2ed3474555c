"""The target of a report: an accuracy or a loss, and how soon each run reached it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outpace.record.curves import time_to_target_s
from outpace.report.read.runs import Run, number_or_none
from outpace.report.words import number, percent, target_words
from outpace.support.estimates import mean_of
from outpace.support.targets import Target


@dataclass(frozen=True, slots=True)
class ReportTarget(Target):
    """The target that all runs of a report are judged by.

    given: True if the configurations give the target, False if it is derived from the results.
    """

    given: bool = True

    @property
    def title(self) -> str:
        """Short name, such as `90 %` or `loss 0.5`."""
        return percent(self.value) if self.loss is None else f"loss {number(self.value)}"

    @property
    def words(self) -> str:
        """Long name, such as `90 % accuracy` or `a training loss of 0.5`."""
        return target_words(self)

    def applies_to(self, run: Run) -> bool:
        """True if an evaluation of the run has a value in the column."""
        return any(len(each.points("time_s", self.column)[0]) for each in run.counted())

    def reached_s(self, run: Run) -> float | None:
        """Seconds on the run's clock until an evaluation first reached the target.

        For several seeds it is the mean, or None if one of them missed the target.
        """
        if run.seeds:
            times = [self.reached_s(each) for each in run.seeds]
            known = [time_s for time_s in times if time_s is not None]
            return mean_of(known).mean if len(known) == len(times) else None
        return time_to_target_s(run.metrics, self)

    def evaluated_before_s(self, run: Run, time_s: float) -> float | None:
        """Seconds of the last evaluation of a run before a time; None if there was none."""
        times, _ = run.points("time_s", self.column)
        return max(times[times < time_s], default=None)


def target_of(runs: Sequence[Run]) -> ReportTarget | None:
    """Return the target that the configurations give, or else one derived from the results.

    Returns None if neither exists, or if the runs that it applies to have different tasks.
    """
    given = {target for run in runs if (target := _given(run)) is not None}
    target = given.pop() if len(given) == 1 else _derived(runs)
    if target is None:
        return None
    compared = [run for run in runs if run.status != "failed" and target.applies_to(run)]
    same_task = all(run.setting("task") == compared[0].setting("task") for run in compared)
    return target if same_task else None


def _given(run: Run) -> ReportTarget | None:
    stop = number_or_none(run.setting("stop", "target_accuracy"))
    accuracy, loss = (number_or_none(run.setting("target", key)) for key in ("accuracy", "loss"))
    try:
        return ReportTarget(stop if accuracy is None and loss is None else accuracy, loss)
    except ValueError:
        return None  # there is none, or the file is damaged


def _derived(runs: Sequence[Run]) -> ReportTarget | None:
    """Return the lowest of the runs' best accuracies, rounded down.

    Returns None for fewer than two runs, or if a run had this accuracy at its start. Failed runs do
    not lower the target.
    """
    curves = [run.points("time_s", "accuracy")[1] for run in runs if run.status != "failed"]
    known = [curve for curve in curves if len(curve)]
    if len(known) < 2:
        return None
    lowest = min(float(curve.max()) for curve in known)
    step = 0.05 if lowest < 0.9 else 0.01 if lowest < 0.99 else 0.001
    target = round(math.floor(lowest / step + 1e-9) * step, 3)
    at_first = max(float(curve[0]) for curve in known)
    return ReportTarget(target, given=False) if target > at_first else None
