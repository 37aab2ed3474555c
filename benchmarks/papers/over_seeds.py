"""A quantity measured on several seeds, and the decisions that the seeds allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from benchmarks.papers.claims import UNDECIDED, Verdict
from rich.console import Console
from rich.table import Table

from outpace.support.estimates import mean_of

# By which `Spread.below` decides, as the margin of a claim.
INTERVAL: Final = "95 % interval of the paired difference"
Run = TypeVar("Run")


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of a quantity, one for each seed.

    `f"{spread:.2f}"` is "1.15 ± 0.03": mean and standard error; the mean alone for one seed.
    A time that a run did not reach is infinite, and the text says in how many runs. Arithmetic is
    by seed, so `a / b` holds the ratio of each pair of runs on the same seed.
    """

    values: tuple[float, ...]

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, self.values))

    @property
    def mean(self) -> float:
        # fsum raises ValueError if one seed has ∞ and another −∞; the sum is NaN.
        total = math.fsum(self.values) if self.is_finite else sum(self.values)
        return total / len(self.values)

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 for one seed, NaN if a value is infinite."""
        n = len(self.values)
        if n == 1:
            return 0.0
        mean = self.mean
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self.values) / (n - 1) / n)

    def near(self, published: float, margin: float) -> bool:
        """True if the mean is within the margin of the published value."""
        return abs(self.mean - published) <= margin

    def below(self, other: Spread | float) -> Verdict:
        """Return whether it is less than the other one, by the differences on the same seeds.

        True or False if the 95 % interval of the mean difference (Student's t) excludes 0,
        UNDECIDED if not. One seed decides by the sign; if a difference is infinite, all must be
        below 0.
        """
        difference = self - other
        if len(set(difference.values)) == 1 or not difference.is_finite:
            return all(value < 0 for value in difference.values)
        if not mean_of(difference.values).excludes(0.0):
            return UNDECIDED
        return difference.mean < 0

    def above(self, other: Spread | float) -> Verdict:
        """Return whether it is more than the other one; see `below`."""
        return (-self).below(-other)

    def _by_seed(self, other: Spread | float, apply: Callable[[float, float], float]) -> Spread:
        values = other.values if isinstance(other, Spread) else (other,) * len(self.values)
        return Spread(tuple(apply(a, b) for a, b in zip(self.values, values, strict=True)))

    def __add__(self, other: Spread | float) -> Spread:
        return self._by_seed(other, lambda a, b: a + b)

    def __sub__(self, other: Spread | float) -> Spread:
        return self._by_seed(other, lambda a, b: a - b)

    def __mul__(self, other: Spread | float) -> Spread:
        return self._by_seed(other, lambda a, b: a * b)

    def __truediv__(self, other: Spread | float) -> Spread:
        return self._by_seed(other, lambda a, b: a / b)

    def __neg__(self) -> Spread:
        return self * -1.0

    def __rsub__(self, other: float) -> Spread:
        return -self + other

    def __rtruediv__(self, other: float) -> Spread:
        return self._by_seed(other, lambda a, b: b / a)

    def __format__(self, how: str) -> str:
        missed = sum(not math.isfinite(value) for value in self.values)
        if missed:
            return f"never in {missed} of {len(self.values)} runs"
        mean = format(self.mean, how)
        error = format(self.error, how.replace("+", ""))
        return mean if len(self.values) == 1 else f"{mean} ± {error}"


def over_seeds(runs: Iterable[Run], quantity: Callable[[Run], float]) -> Spread:
    """Return the quantity of each run of a variant, which are on different seeds."""
    return Spread(tuple(map(quantity, runs)))


def lowest(values: Iterable[Spread]) -> Spread:
    """Return the quantity with the smallest mean."""
    return min(values, key=lambda each: each.mean)


def highest(values: Iterable[Spread]) -> Spread:
    """Return the quantity with the largest mean."""
    return max(values, key=lambda each: each.mean)


def show_spreads(title: str, rows: Mapping[str, Any]) -> None:
    """Print a table of dataclasses of spreads, by name, with a column for each field."""
    columns = [each.name for each in fields(next(iter(rows.values())))]
    table = Table("", *columns, title=title)
    for name, row in rows.items():
        table.add_row(name, *(f"{getattr(row, column):.4g}" for column in columns))
    Console(width=170).print(table)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return False if one is False, else UNDECIDED if one is, else True."""
    found: Sequence[Verdict] = list(verdicts)
    if any(each is False for each in found):
        return False
    return UNDECIDED if UNDECIDED in found else True
