"""An accuracy that every run of a comparison reached, to ask how soon."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outpace.report.read.runs import Run


def common_target(runs: Sequence[Run]) -> float | None:
    """The lowest of the runs' best accuracies, rounded down; None if it says nothing.

    It says nothing about fewer than two runs, about runs of different tasks, or if some
    run had it from the start. Failed runs do not lower it.
    """
    compared = [run for run in runs if run.status != "failed" and run.best_accuracy() is not None]
    if len(compared) < 2 or not same_task(compared):
        return None
    lowest = min(run.best_accuracy() or 0.0 for run in compared)
    step = 0.05 if lowest < 0.9 else 0.01 if lowest < 0.99 else 0.001
    target = round(math.floor(lowest / step + 1e-9) * step, 3)
    firsts = [next(a for a in run.metrics["accuracy"] if a is not None) for run in compared]
    return target if target > max(firsts) else None


def same_task(runs: Sequence[Run]) -> bool:
    """Whether accuracies of these runs can be compared."""
    return all(run.setting("task") == runs[0].setting("task") for run in runs)


def evaluation_gap_s(run: Run, time_s: float) -> float:
    """The time between the evaluation at `time_s` and the one before it."""
    before = [t for t in run.metrics["time_s"] if t is not None and t < time_s]
    return time_s - max(before, default=time_s)
