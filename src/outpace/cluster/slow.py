"""Periods in which simulated workers are slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from outpace.errors import ConfigError
from outpace.support.checks import not_negative, positive, require
from outpace.support.units import Time, nanoseconds


@dataclass(frozen=True, slots=True)
class Slow:
    """Workers take `factor` times as long for iterations that start in [from_s, until_s).

    Overlapping periods multiply.

    Args:
        workers: Their numbers.
        from_s: Seconds since the start of the run.
        until_s: By default the end of the run.
    """

    workers: tuple[int, ...]
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf

    def __post_init__(self) -> None:
        require(positive(self.factor), "factor", "a positive number, at most 1e9", self.factor)
        require(not_negative(self.from_s), "from_s", "a number from 0 to 1e9", self.from_s)
        require(self.until_s > self.from_s, "until_s", f"after {self.from_s}", self.until_s)
        for worker in self.workers:
            require(worker >= 0, "workers", "worker numbers from 0", worker)


def slow_factors(slow: tuple[Slow, ...], workers: int) -> Callable[[int, Time], float]:
    """Return the function from worker and start (ns) to the factor of its slow periods.

    Raises:
        ConfigError: if a period names a worker that does not exist.
    """
    periods: dict[int, list[tuple[float, Time, float]]] = {}  # factor, from, until
    for period in slow:
        end = math.inf if math.isinf(period.until_s) else nanoseconds(period.until_s)
        for worker in period.workers:
            if worker >= workers:
                raise ConfigError(
                    f"compute.slow: there is no worker {worker}; "
                    f"{workers} workers are numbered 0 to {workers - 1}"
                )
            periods.setdefault(worker, []).append((period.factor, nanoseconds(period.from_s), end))

    def factor(worker: int, now: Time) -> float:
        product = 1.0
        for times, start, end in periods.get(worker, ()):
            if start <= now < end:
                product *= times
        return product

    return factor
