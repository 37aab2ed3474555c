"""Generated clusters: which workers are named, when, and which should have been."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.slow import SlowPeriod, slow_units

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, float, tuple[int, int]], Floats]

FACTOR: Final = 1.2
WITHIN: Final = 20  # iterations
UNEVEN: Final = (0.0, 0.02)  # standard deviations of the factors of workers that are not slow
SLOW_OF: Final = ((4, 1), (8, 1), (8, 2), (16, 2), (64, 3))  # workers, and how many are slow
EVEN: Final = (2, 4, 16, 64)  # workers of clusters without a slow one
BURST: Final = 30  # iterations
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
    """Counts of clusters of one law and cv.

    Args:
        right, wrong, missed: Slow workers that were named within WITHIN iterations; others that
            were named; slow ones that were not.
        after: Iterations until a slow worker was named.
        clusters: Clusters without a slow worker.
        false: Those of them in which a slow period was named.
    """

    law: str
    cv: float
    right: int = 0
    wrong: int = 0
    missed: int = 0
    after: list[int] | None = None
    clusters: int = 0
    false: int = 0

    @property
    def recall(self) -> float:
        return self.right / max(self.right + self.missed, 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.right + self.wrong, 1)

    def add(self, other: Named) -> None:
        """Add the counts of another."""
        for name in ("right", "wrong", "missed", "clusters", "false"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.after = (self.after or []) + (other.after or [])


def named(law: str, cv: float, seeds: int, iterations: int = WITHIN, even: int = 300) -> Named:
    """Return the counts over clusters with and without slow workers.

    Args:
        iterations: Of a cluster with slow workers.
        even: Iterations of a cluster without.
    """
    found = Named(law, cv, after=[])
    assert found.after is not None
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


@dataclass
class Bursts:
    """Slow periods that were found, and how far off their ends are (iterations)."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    off: tuple[int, ...] = ()


def bursts(seeds: int, cv: float = 0.05) -> Bursts:
    """Return what is found of two bursts of one of 8 or 32 workers, in 400 iterations.

    A burst is 2 times as slow.
    """
    found = Bursts()
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
                found.off += (abs(period.first - near[0][1]), abs(last - near[0][2]))
            found.missed += len(left)
    return found
