"""Generated clusters: which workers are named, when, and which are really slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from benchmarks.parts import Cells
from numpy.typing import NDArray

from outpace.predict.slow import SlowPeriod, slow_units

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, float, tuple[int, int]], Floats]

FACTOR: Final = 1.2
WITHIN: Final = 20  # iterations
UNEVEN: Final = (0.0, 0.02)  # standard deviations of the factors of workers that are not slow
# number of workers, and number of slow workers
SLOW_OF: Final = ((4, 1), (8, 1), (8, 2), (16, 2), (64, 3))
EVEN: Final = (2, 4, 16, 64)  # number of workers of clusters without a slow worker
BURST: Final = 30  # iterations
CVS: Final = (0.02, 0.05, 0.1)
WIDE: Final = (0.2, 0.3)  # for these no goal is set
LEAST: Final = 0.99  # precision and recall
_FALSE: Final = "false: a slow worker was named"  # of one column of the table
_NOT_SLOW: Final = (0.9, 1.05)


def _lognormal(source: np.random.Generator, cv: float, shape: tuple[int, int]) -> Floats:
    return source.lognormal(0.0, math.sqrt(math.log1p(cv**2)), shape)


def _with_common(source: np.random.Generator, cv: float, shape: tuple[int, int]) -> Floats:
    return _lognormal(source, cv, shape) * source.lognormal(0.0, 0.4, (shape[0], 1))


LAWS: Final[dict[str, Draw]] = {
    "log-normal": _lognormal,
    "gamma": lambda source, cv, shape: source.gamma(1 / cv**2, cv**2, shape),
    "shifted exponential": lambda source, cv, shape: 1 - cv + source.exponential(cv, shape),
    "Student t, 4 degrees, on the logarithm": lambda source, cv, shape: np.exp(
        cv / math.sqrt(2) * source.standard_t(4, shape)
    ),
    "Student t, 3 degrees, on the logarithm": lambda source, cv, shape: np.exp(
        cv / math.sqrt(3) * source.standard_t(3, shape)
    ),
    "log-normal, and a factor common to all": _with_common,
}


@dataclass
class Named:
    """Counts of clusters.

    Args:
        right, wrong, missed: Slow workers that were named within WITHIN iterations; other workers
            that were named; slow workers that were not named.
        after: Number of iterations until a slow worker was named.
        clusters: Number of clusters without a slow worker.
        false: Number of these clusters in which a slow period was named.
    """

    right: int = 0
    wrong: int = 0
    missed: int = 0
    after: list[int] = field(default_factory=list)
    clusters: int = 0
    false: int = 0

    @property
    def recall(self) -> float:
        return self.right / max(self.right + self.missed, 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.right + self.wrong, 1)

    def add(self, other: Named) -> None:
        """Add the counts of another `Named`."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def cells(self, what: str, *, met: bool = True) -> Cells:
        """Return a row of the table."""
        after = sorted(self.after)
        return {
            "law of the noise, cv": what,
            "recall": f"{100 * self.recall:.2f} %",
            "precision": f"{100 * self.precision:.2f} %",
            "named after, median": after[len(after) // 2] if after else "",
            "99 %": after[int(0.99 * (len(after) - 1))] if after else "",
            _FALSE: f"{self.false} of {self.clusters}",
            "met": met,
        }


def named(law: str, cv: float, seeds: int, iterations: int = WITHIN, even: int = 300) -> Named:
    """Return the counts over clusters with and without slow workers.

    Args:
        iterations: Number of iterations of a cluster with slow workers.
        even: Number of iterations of a cluster without slow workers.
    """
    found = Named()
    for spread in UNEVEN:
        for workers, count in SLOW_OF:
            for seed in range(seeds):
                source = np.random.default_rng([seed, workers, count])
                factors = _factors(source, workers, spread)
                slow = set(source.permutation(workers)[:count].tolist())
                factors[list(slow)] = FACTOR
                periods = slow_units(LAWS[law](source, cv, (iterations, workers)) * factors).periods
                names = {period.unit for period in periods}
                found.right += len(names & slow)
                found.wrong += len(names - slow)
                found.missed += len(slow - names)
                found.after += [_first(periods, unit) + 1 for unit in names & slow]
        for workers in EVEN:
            for seed in range(-(-seeds // 8)):
                source = np.random.default_rng([seed, workers])
                factors = _factors(source, workers, spread)
                found.clusters += 1
                periods = slow_units(LAWS[law](source, cv, (even, workers)) * factors).periods
                found.false += bool(periods)
    return found


def _first(periods: Sequence[SlowPeriod], unit: int) -> int:
    return min(period.named for period in periods if period.unit == unit)


def _factors(source: np.random.Generator, workers: int, spread: float) -> Floats:
    return np.asarray(np.clip(1 + spread * source.standard_normal(workers), *_NOT_SLOW))


def bursts(seeds: int, cv: float = 0.05) -> tuple[Named, float]:
    """Return how two bursts of one of 8 or 32 workers are found in 400 iterations.

    A burst is 2 times as slow. The number is the mean distance of the ends of slow periods, in
    iterations.
    """
    found, off = Named(), list[int]()
    for workers in (8, 32):
        for seed in range(seeds):
            source = np.random.default_rng([seed, workers])
            times = _with_common(source, cv, (400, workers))
            begins = source.integers(20, 150), source.integers(220, 350)
            spans = [(2, int(begin), int(begin) + BURST - 1) for begin in begins]
            for unit, first, last in spans:
                times[first : last + 1, unit] *= 2
            left = list(spans)
            for period in slow_units(times).periods:
                last = 399 if period.last is None else period.last
                near = [
                    span
                    for span in left
                    if span[0] == period.unit and span[1] <= last and period.first <= span[2]
                ]
                if not near:
                    found.wrong += 1
                    continue
                left.remove(near[0])
                found.right += 1
                off += [abs(period.first - near[0][1]), abs(last - near[0][2])]
            found.missed += len(left)
    return found, statistics.mean(off) if off else math.nan


def names(seeds: int, *, quick: bool) -> list[Cells]:
    """Return the results of all laws, of all laws together, of wide laws, and of bursts."""
    rows, whole = [], Named()
    for law in LAWS:
        for cv in CVS[: 1 if quick else None]:
            each = named(law, cv, seeds)
            whole.add(each)
            rows.append(each.cells(f"{law}, {100 * cv:.0f} %"))
    met = min(whole.precision, whole.recall) >= LEAST
    met &= whole.false <= max(1, 0.02 * whole.clusters)  # 1 %, of workers that are equal
    rows.append(whole.cells("all of these", met=met))
    for cv in WIDE[: 0 if quick else None]:
        wide = named("log-normal", cv, max(1, seeds // 4), 150)
        rows.append(wide.cells(f"log-normal, {100 * cv:.0f} %, in 150 iterations"))
    found, off = bursts(max(1, seeds // 4))
    last = found.cells("two bursts of 30 iterations, 5 %")
    last[_FALSE] = f"ends {off:.2g} iterations off on average"
    last["met"] = found.right >= LEAST * (found.right + max(found.missed, found.wrong))
    return [*rows, last]
