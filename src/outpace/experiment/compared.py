"""The rows of a comparison, and the results of each variant over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.experiment.results import Result
from outpace.record import folder as files
from outpace.record.comparison import VariantResult, plain_comparison
from outpace.record.curves import curve_of, time_to_target_s
from outpace.record.metrics import METRICS
from outpace.support.estimates import (
    NOTHING,
    TimeTo,
    difference_of,
    mean_of,
    mean_time,
    next_of,
    ratio_of,
)
from outpace.support.targets import Target

_MOST_IN_WORDS: Final = 20  # least number of runs
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Variant:
    """An experiment with a name.

        bsp = replace(experiment, sync=outpace.sync.Bsp())  # dataclasses.replace
        variants = [outpace.Variant("SSP", experiment), outpace.Variant("BSP", bsp)]
        comparison = outpace.compare(variants, seeds=2)

    Attributes:
        name: name of the variant in tables.
        experiment: the configuration of its runs.
    """

    name: str
    experiment: Experiment


@dataclass(frozen=True, slots=True)
class Row:
    """A run of a comparison: its result, or the error that ended it.

    Attributes:
        variant: the variant that was run.
        seed: the run's seed.
        summary: the content of summary.json.
        error: None if the run is complete.
        folder: the run's folder; None if the run was kept in memory.
        kept: the result of a run that was kept in memory.
    """

    variant: Variant
    seed: int
    summary: dict[str, Any]
    error: str | None
    folder: Path | None = None
    kept: Result | None = None

    @property
    def goal(self) -> Target | None:
        """See `Experiment.goal`."""
        return self.variant.experiment.goal

    @property
    def result(self) -> Result | None:
        """The result, read again from the run's folder if it has one; None if the run failed."""
        if self.folder is None or self.error is not None:
            return self.kept
        return Result.read(self.folder)

    def __repr__(self) -> str:
        why = "" if self.error is None else f": {self.error}"
        return f"<{self.variant.name}, seed {self.seed}: {self.summary['status']}{why}>"


class Comparison(list[Row]):
    """The rows of a comparison, in the order of the variants and their seeds."""

    @cached_property
    def results(self) -> list[VariantResult]:
        """The results of each variant over its seeds, in the order of the variants."""
        return compared(self)

    @property
    def variants(self) -> list[dict[str, Any]]:
        """The results of each variant over its seeds: the content of comparison.json."""
        return plain_comparison(self.results)

    def __repr__(self) -> str:
        rows = [f"  {row!r}" for row in self[:_MOST_IN_WORDS]]
        more = [f"  and {len(self) - len(rows)} more"] if len(self) > len(rows) else []
        return "\n".join([f"Comparison of {len(self)} runs:", *rows, *more])

    def name_of(self, row: Row) -> str:
        """Return the name of a run, which is unique in the comparison.

        Args:
            row: the row of the run.
        """
        alone = len({each.seed for each in self}) == 1
        return row.variant.name if alone else f"{row.variant.name}, seed {row.seed}"


def compared(rows: Sequence[Row]) -> list[VariantResult]:
    """Return the results of each variant from its runs, in the order of the variants."""
    variants: dict[str, dict[int, Row]] = {}
    for row in rows:
        variants.setdefault(row.variant.name, {})[row.seed] = row
    first = next(iter(variants.values()), {})
    return [_compared(name, runs, first) for name, runs in variants.items()]


def _compared(name: str, runs: dict[int, Row], first: dict[int, Row]) -> VariantResult:
    """Return the results of a variant. runs, first: its runs and the first variant's, by seed."""
    times, first_times = _known(_time_to, runs), _known(_time_to, first)
    both = [seed for seed in times if seed in first_times and runs[seed].goal == first[seed].goal]
    ratio = ratio_of([times[seed] for seed in both], [first_times[seed] for seed in both])
    accuracies, first_accuracies = _known(_accuracy, runs), _known(_accuracy, first)
    pairs = [seed for seed in accuracies if seed in first_accuracies]
    distinguishable: bool | None = None
    if runs is not first and len(both) > 1:
        distinguishable = ratio.excludes(1.0)
    elif runs is not first and not times and len(pairs) > 1:
        gain = difference_of(
            [accuracies[seed] for seed in pairs], [first_accuracies[seed] for seed in pairs]
        )
        distinguishable = gain.excludes(0.0)
    return VariantResult(
        name,
        seeds=len(runs),
        failed=sum(row.error is not None for row in runs.values()),
        missed=sum(not time.reached for time in times.values()),
        run_s=next_of([*_known(_run_s, runs).values()]).within(0.0),
        time_to_target_s=mean_time([*times.values()]) if times else NOTHING,
        accuracy=mean_of([*accuracies.values()]).within(0.0, 1.0),
        goodput=mean_of([*_known(_goodput, runs).values()]).within(0.0, 1.0),
        ratio_to_first=ratio,
        distinguishable=distinguishable,
    )


def _known(value: Callable[[Row], _Value | None], runs: Mapping[int, Row]) -> dict[int, _Value]:
    """Return the values of the runs that have one, by seed."""
    found = {seed: value(row) for seed, row in runs.items()}
    return {seed: each for seed, each in found.items() if each is not None}


def _run_s(row: Row) -> float | None:
    """Return how long a complete run took, by its clock."""
    taken = row.summary.get("virtual_time_s", row.summary.get("wall_time_s"))
    return None if row.error is not None else taken or None


def _goodput(row: Row) -> float | None:
    goodput: float | None = (row.summary.get("faults") or {}).get("goodput")
    return goodput


def _accuracy(row: Row) -> float | None:
    accuracy: float | None = row.summary.get("accuracy")
    return accuracy


def _time_to(row: Row) -> TimeTo | None:
    """Return when the run reached the target of its configuration; None if it has no target."""
    if row.goal is None:
        return None
    if (at := time_to_target_s(_evaluations(row), row.goal)) is not None:
        return TimeTo(at, True)
    ended_s: float | None = row.summary.get("virtual_time_s")
    return TimeTo(ended_s, False) if ended_s else None


def _evaluations(row: Row) -> pa.Table:
    """Return the curve of a run, whether it is complete or failed."""
    if row.folder is not None and (row.folder / files.METRICS).is_file():
        return curve_of(files.read_table(row.folder / files.METRICS))
    return METRICS.empty_table() if row.kept is None else curve_of(row.kept.metrics)
