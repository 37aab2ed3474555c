"""Laws of random times: how long simulated workers compute and simulated servers need."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from outpace.errors import ConfigError
from outpace.support.checks import (
    KINDS,
    Count,
    NotNegative,
    Number,
    Positive,
    Probability,
    check_ranges,
    require,
)
from outpace.support.randomness import RandomStream, generator
from outpace.support.units import Time, nanoseconds

RunTime: TypeAlias = Callable[[int, int, Time], float]  # worker, iteration, now (ns) -> seconds
Draw: TypeAlias = Callable[[np.random.Generator, int], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Slow:
    """A period in which workers are slower.

    Iterations that start in [from_s, until_s) take `factor` times as long. The factors of
    overlapping periods multiply.

    Attributes:
        workers: Numbers of the slow workers.
        from_s: Seconds since the start of the run.
        until_s: Seconds since the start of the run; by default its end.
        factor: multiple of their run times.
    """

    workers: tuple[Number, ...]
    factor: Positive
    from_s: NotNegative = 0.0
    until_s: float = math.inf

    def __post_init__(self) -> None:
        check_ranges(self)
        require(self.until_s > self.from_s, "until_s", f"after {self.from_s}", self.until_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative standard errors of the parameters of a law that was calibrated.

    Args:
        mean_s: Relative error of the mean.
        cv: Relative error of the coefficient of variation; only if the law has one.
        factors: Relative error of the factor of each worker; empty: the factors are exact.
        speed: Relative error of the speed of all workers together, which differs from run to run.
        known: Number of workers that were calibrated. Each further worker is like one of these
            workers, drawn for each seed. None: all workers were calibrated.
    """

    mean_s: Probability = 0.0
    cv: Probability = 0.0
    factors: tuple[Probability, ...] = ()
    speed: Probability = 0.0
    known: Count | None = None

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeLaw(ABC):
    """A worker's time per iteration: mean_s · shape · factor of the worker · slow periods.

    Args:
        mean_s: Mean time in seconds, before factors and slow periods; of `shifted-exponential`,
            without `shift_s`.
        worker_cv: Standard deviation of the workers' factors, which are drawn with mean 1.
        factors: The factor of each worker, in place of drawn factors; empty: they are drawn.
        slow: Periods in which workers are slower.
        errors: Draw the parameters for each seed within these errors; None: they are exact.
    """

    mean_s: Positive
    worker_cv: NotNegative = 0.0
    factors: tuple[Positive, ...] = ()
    slow: tuple[Slow, ...] = field(default=())
    errors: Errors | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        alone = not (self.factors and self.worker_cv)
        require(alone, "worker_cv", "left out where factors are given", self.worker_cv)
        of_factors = () if self.errors is None else self.errors.factors
        fits = not of_factors or len(of_factors) == len(self.factors)
        require(fits, "errors.factors", "one for each of the factors", list(of_factors))

    @abstractmethod
    def shape(self) -> Draw:
        """Return a function that draws multiples of `mean_s`."""

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """Return the function from worker, iteration and the iteration's start (ns) to seconds.

        iterations: the number that each worker runs at most, if it is known. Raises ConfigError if
        a slow period names a worker that does not exist, or not every worker has a factor.
        """
        if self.factors and len(self.factors) != workers:
            raise ConfigError(
                f"compute.factors must be one for each of the {workers} workers, "
                f"not {len(self.factors)}"
            )
        law = self.drawn(seed)
        speed = drawn_speed(0.0 if self.errors is None else self.errors.speed, seed)
        return drawn_run_times(
            law.shape(), speed * law.mean_s, law.worker_cv, law.slow, seed, workers, law.factors
        )

    def drawn(self, seed: int) -> Self:
        """Return a law with parameters drawn within `errors`, each from a log-normal law."""
        if self.errors is None:
            return self
        count, known = len(self.factors), self.errors.known
        of = np.arange(count)
        if known is not None and known < count:
            of[known:] = generator(seed, "workers of the law").integers(known, size=count - known)
        logs = generator(seed, "errors of factors").normal(size=count)
        errors = np.array(self.errors.factors or (0.0,) * count)
        factors = tuple((np.array(self.factors)[of] * np.exp(errors[of] * logs)).tolist())
        mean_s = self.mean_s * math.exp(self.errors.mean_s * _normal(seed, "error of mean"))
        return replace(self, mean_s=mean_s, factors=factors, errors=None)

    def service_times(self, seed: int, purpose: str, node: int) -> RandomStream:
        """Return the seconds that a node needs for its first, second, ... push, pull or other work.

        If the law has factors, the times have the factor of the node.
        """
        draw = self.shape()
        mean_s = self.mean_s * (self.factors[node] if self.factors else 1.0)
        return RandomStream(seed, purpose, node, lambda source, n: mean_s * draw(source, n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(RunTimeLaw):
    """Run times that are always `mean_s`."""

    kind: Literal["constant"] = "constant"

    def shape(self) -> Draw:
        return lambda _, n: np.ones(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(RunTimeLaw, ABC):
    """A law with a coefficient of variation.

    Attributes:
        cv: ratio of standard deviation to mean, from 0 to 1000.
    """

    cv: Annotated[float, Field(ge=0, le=1000)] = 0.0

    def drawn(self, seed: int) -> Self:
        found = super(Spread, self).drawn(seed)
        if self.errors is None:
            return found
        cv = self.cv * math.exp(self.errors.cv * _normal(seed, "error of cv"))
        return replace(found, cv=cv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal(Spread):
    """Normal run times with standard deviation cv·mean_s; a negative draw counts as 0."""

    kind: Literal["normal"] = "normal"

    def shape(self) -> Draw:
        return lambda source, n: np.maximum(source.normal(1.0, self.cv, n), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Spread):
    """Log-normal run times with mean mean_s and standard deviation cv·mean_s."""

    kind: Literal["lognormal"] = "lognormal"

    def shape(self) -> Draw:
        return lognormal(self.cv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(RunTimeLaw):
    """Exponential run times with mean mean_s."""

    kind: Literal["exponential"] = "exponential"

    def shape(self) -> Draw:
        return lambda source, n: source.exponential(1.0, n)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedExponential(RunTimeLaw):
    """Run times that are the sum of `shift_s` and an exponential time with mean `mean_s`.

    Speeds of workers and slow periods multiply the sum.

    Attributes:
        shift_s: seconds that every iteration takes.
    """

    shift_s: NotNegative
    kind: Literal["shifted-exponential"] = "shifted-exponential"

    def shape(self) -> Draw:
        shift = self.shift_s / self.mean_s
        return lambda source, n: shift + source.exponential(1.0, n)


# How long a server needs for a push or pull, and a worker for a gradient.
ServiceLaw: TypeAlias = Annotated[
    Constant | Normal | Lognormal | Exponential | ShiftedExponential, KINDS
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSize:
    """The server size that service times are for, and how the times change with the size.

    The change is limited, so that no time of a small server is negative.

    Args:
        size_bytes: Bytes of the parameters of a server to which the times apply unchanged.
        message_s_per_byte: Additional seconds of a push and of a pull for each additional byte.
        update_s_per_byte: Additional seconds of an update, which reads and writes every parameter,
            for each additional byte. It also holds for pushes if no `update_time` is given, since
            they contain the update then.
    """

    size_bytes: Count
    message_s_per_byte: NotNegative
    update_s_per_byte: NotNegative

    def __post_init__(self) -> None:
        check_ranges(self)

    def factor(self, law: ServiceLaw, size_bytes: int, *, has_update: bool) -> float:
        """Return the factor of the law's times on a server with `size_bytes` bytes."""
        mean_s = law.mean_s + (law.shift_s if isinstance(law, ShiftedExponential) else 0.0)
        slope = self.update_s_per_byte if has_update else self.message_s_per_byte
        slope = min(slope, mean_s / self.size_bytes)
        return 1 + slope * (size_bytes - self.size_bytes) / mean_s


def drawn_speed(cv: float, seed: int) -> float:
    """Return the factor of a run's run times, as the machine's speed differs between runs."""
    return math.exp(cv * _normal(seed, "speed of the run"))


def _normal(seed: int, purpose: str) -> float:
    return float(generator(seed, purpose).normal())


def lognormal(cv: float) -> Draw:
    """Return draws from the log-normal law with mean 1 and this coefficient of variation."""
    variance = math.log1p(cv**2)  # standard deviation of the logarithm
    return lambda source, n: source.lognormal(-variance / 2, math.sqrt(variance), n)


def drawn_run_times(
    draw: Draw,
    scale_s: float,
    worker_cv: float,
    slow: tuple[Slow, ...],
    seed: int,
    workers: int,
    factors: tuple[float, ...] = (),
) -> RunTime:
    """Return draws · scale_s · factor of the worker · slow periods; see `RunTimeLaw.run_time`."""
    slowness = slow_factors(slow, workers)
    if not factors:
        drawn = generator(seed, "worker speed").normal(1.0, worker_cv, workers)
        factors = tuple(max(float(factor), 0.1) for factor in drawn)
    scales = [scale_s * factor for factor in factors]
    streams = [RandomStream(seed, "run time", worker, draw) for worker in range(workers)]

    def run_time(worker: int, iteration: int, now: Time) -> float:
        return scales[worker] * streams[worker][iteration] * slowness(worker, now)

    return run_time


def slow_factors(slow: tuple[Slow, ...], workers: int) -> Callable[[int, Time], float]:
    """Return the function from worker and start (ns) to the factor of its slow periods.

    Raises ConfigError if a period names a worker that does not exist.
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
