"""The best run of each column, and whether two variants can be told apart over their seeds."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.report.columns import Column, Value
from outpace.report.read.runs import Run, clock
from outpace.support.estimates import TimeTo, difference_of, ratio_of


def best_of(column: Column, runs: Sequence[Run]) -> set[int]:
    """Return the indices of the complete runs that are best in a column.

    The set is empty if the column has no better end, if fewer than two runs can be compared, or
    if all runs that can be compared have the same value. Over several seeds, it is empty too if
    the best variant cannot be told apart from every worse one.
    """
    values = {
        place: value
        for place, run in enumerate(runs)
        if run.complete and (value := column.value(run)) is not None
    }
    if column.better is None or len(values) < 2 or len(set(values.values())) == 1:
        return set()
    compared = [runs[place] for place in values]
    if column.same_work and not _same_work(compared):
        return set()
    if column.one_clock and clock(compared) == "time":
        return set()
    best = min(values.values()) if column.better == "low" else max(values.values())
    places = {place for place, value in values.items() if value == best}
    clear = all(
        apart(column.value, runs[one], runs[other], by_ratio=column.by_ratio)
        for one in places
        for other in values.keys() - places
    )
    return places if clear else set()


def apart(value: Value, one: Run, other: Run, *, by_ratio: bool = False) -> bool:
    """True if the 95 % interval of the difference, or ratio, over common seeds excludes equality.

    Also true for runs with one seed: they have no interval.
    """
    if not one.seeds:
        return True
    found, others = (
        {each.setting("seed"): known for each in run.seeds if (known := value(each)) is not None}
        for run in (one, other)
    )
    pairs = [(found[seed], others[seed]) for seed in found if seed in others]
    if by_ratio:
        ratio = ratio_of(*([TimeTo(pair[side], True) for pair in pairs] for side in (0, 1)))
        return ratio.excludes(1.0)
    return difference_of(*([pair[side] for pair in pairs] for side in (0, 1))).excludes(0.0)


def _same_work(runs: Sequence[Run]) -> bool:
    """True if the numbers of applied gradients differ by at most 1 %."""
    counts = [run.number("gradients_applied") or 0.0 for run in runs]
    return max(counts) - min(counts) <= 0.01 * max(counts)
