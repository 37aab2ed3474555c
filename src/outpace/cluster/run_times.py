"""How long a simulated worker computes, and a simulated server serves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.errors import ConfigError, RunError
from outpace.predict.recorded import read_nodes, read_run_times
from outpace.support.checks import LARGEST, not_negative, positive, require
from outpace.support.randomness import RandomStream, generator
from outpace.support.units import Time, nanoseconds

RunTime: TypeAlias = Callable[[int, int, Time], float]  # worker, iteration, now -> seconds
_Periods: TypeAlias = dict[int, list[tuple[float, Time, float]]]  # worker -> factor, from, to
Draw: TypeAlias = Callable[[np.random.Generator, int], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Slow:
    """These workers take `factor` times as long for what they start in [from_s, until_s).

    Overlapping periods multiply. Seconds of the run; `until_s` left out: to its end.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law(ABC):
    """A worker's time per iteration: mean_s · shape · the worker's speed · slow periods.

    The shape has mean 1 where `mean_s` is the mean of the whole.
    """

    mean_s: float
    worker_cv: float = 0.0
    slow: tuple[Slow, ...] = field(default=())

    def __post_init__(self) -> None:
        require(
            positive(self.mean_s),
            "mean_s",
            "a positive number of seconds, at most 1e9",
            self.mean_s,
        )
        require(not_negative(self.worker_cv), "worker_cv", "a number from 0 to 1e9", self.worker_cv)

    @abstractmethod
    def shape(self) -> Draw:
        """Draws multiples of `mean_s`."""

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """The seconds that worker n takes for iteration i if it starts it at `now` (ns).

        Raises ConfigError if a slow period names a worker that is not there.
        """
        return _drawn(self.shape(), self.mean_s, self.worker_cv, self.slow, seed, workers)

    def service_times(self, seed: int, purpose: str, server: int) -> RandomStream:
        """The seconds that a server needs for the first, second, ... thing of a kind."""
        draw, mean_s = self.shape(), self.mean_s
        return RandomStream(seed, purpose, server, lambda source, n: mean_s * draw(source, n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(_Law):
    """Always `mean_s`."""

    kind: Literal["constant"] = "constant"

    def shape(self) -> Draw:
        return lambda _, n: np.ones(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread(_Law, ABC):
    cv: float = 0.0  # coefficient of variation: standard deviation over mean

    def __post_init__(self) -> None:
        super(_Spread, self).__post_init__()
        require(0 <= self.cv <= 1000, "cv", "a number from 0 to 1000", self.cv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal(_Spread):
    """Normal with standard deviation cv·mean_s; a negative draw counts as 0."""

    kind: Literal["normal"] = "normal"

    def shape(self) -> Draw:
        return lambda source, n: np.maximum(source.normal(1.0, self.cv, n), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(_Spread):
    """Log-normal of mean mean_s and standard deviation cv·mean_s."""

    kind: Literal["lognormal"] = "lognormal"

    def shape(self) -> Draw:
        return _lognormal(self.cv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(_Law):
    """Exponential of mean mean_s."""

    kind: Literal["exponential"] = "exponential"

    def shape(self) -> Draw:
        return lambda source, n: source.exponential(1.0, n)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedExponential(_Law):
    """`shift_s`, which nothing undercuts, and an exponential part of mean `mean_s` on top.

    Speeds of workers and slow periods multiply the sum.
    """

    shift_s: float
    kind: Literal["shifted-exponential"] = "shifted-exponential"

    def __post_init__(self) -> None:
        super(ShiftedExponential, self).__post_init__()
        require(not_negative(self.shift_s), "shift_s", "a number from 0 to 1e9", self.shift_s)

    def shape(self) -> Draw:
        shift = self.shift_s / self.mean_s
        return lambda source, n: shift + source.exponential(1.0, n)


@dataclass(frozen=True, slots=True)
class Regime:
    """A state of a node: its workers take `factor` times as long, for dwell_s s on average."""

    factor: float
    dwell_s: float

    def __post_init__(self) -> None:
        require(positive(self.factor), "factor", "a positive number, at most 1e9", self.factor)
        require(
            1e-6 <= self.dwell_s <= LARGEST, "dwell_s", "from 1e-6 to 1e9 seconds", self.dwell_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Regimes(_Spread):
    """Nodes that switch between regimes; what starts in one takes mean_s times its factor.

    A Markov chain in time for each node, of `workers_per_node` consecutive workers: a
    regime lasts an exponential time of mean dwell_s, the next is any of the others, equally
    likely. So the share of time in a regime is its dwell_s over the sum of all. Within a
    regime times are log-normal with `cv`.
    """

    regimes: tuple[Regime, ...]
    workers_per_node: int = 1
    kind: Literal["regimes"] = "regimes"

    def __post_init__(self) -> None:
        super(Regimes, self).__post_init__()
        require(len(self.regimes) > 1, "regimes", "a list of at least two", list(self.regimes))
        require(self.workers_per_node > 0, "workers_per_node", "at least 1", self.workers_per_node)

    def shape(self) -> Draw:
        return _lognormal(self.cv)

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        within = super(Regimes, self).run_time(seed, workers, iterations)
        count = math.ceil(workers / self.workers_per_node)
        nodes = [_Switching(self.regimes, generator(seed, "regime", node)) for node in range(count)]

        def run_time(worker: int, iteration: int, now: Time) -> float:
            factor = nodes[worker // self.workers_per_node].factor(now)
            return within(worker, iteration, now) * factor

        return run_time


class _Switching:
    """The regimes of one node, made as far as somebody asked."""

    def __init__(self, regimes: tuple[Regime, ...], source: np.random.Generator) -> None:
        self._regimes, self._source = regimes, source
        shares = np.array([regime.dwell_s for regime in regimes])
        first = int(source.choice(len(regimes), p=shares / shares.sum()))  # as in the long run
        self._states, self._ends = [first], [self._dwell(first)]

    def factor(self, now: Time) -> float:
        while self._ends[-1] <= now:
            step = 1 + int(self._source.integers(len(self._regimes) - 1))
            state = (self._states[-1] + step) % len(self._regimes)
            self._states.append(state)
            self._ends.append(self._ends[-1] + self._dwell(state))
        return self._regimes[self._states[bisect_right(self._ends, now)]].factor

    def _dwell(self, state: int) -> Time:
        return max(1, nanoseconds(self._source.exponential(self._regimes[state].dwell_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Run times from a file (see `runtimes`), times `scale`.

    wrap: after the last recorded iteration begin again with the first; else a worker that
    has done them all ends the run with an error.
    """

    path: str
    scale: float = 1.0
    wrap: bool = False
    slow: tuple[Slow, ...] = field(default=())
    kind: Literal["trace"] = "trace"

    def __post_init__(self) -> None:
        require(bool(self.path), "path", "a file", self.path)
        require(positive(self.scale), "scale", "a positive number, at most 1e9", self.scale)

    def absolute(self, folder: Path) -> Recorded:
        """With its path seen from `folder`."""
        return replace(self, path=str((folder / self.path).resolve()))

    def nodes(self, workers: int) -> NDArray[np.int64] | None:
        """Which of them share a machine, shape (N,); None if the file does not say.

        Raises ConfigError if the file has other workers.
        """
        return read_nodes(Path(self.path), workers)

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """As `_Law.run_time`, for so many iterations, if that is known.

        Raises ConfigError if that many are not recorded; later RunError where one is not.
        """
        recorded = read_run_times(Path(self.path))
        missing = sorted(set(range(workers)) - recorded.keys())
        strange = sorted(recorded.keys() - set(range(workers)))
        if missing:
            raise ConfigError(f"{self.path}: has no run times of worker {missing[0]}")
        if strange:
            raise ConfigError(
                f"{self.path}: has run times of worker {strange[0]}, and there are {workers} "
                f"workers, numbered from 0"
            )
        for worker in range(workers):
            count = len(recorded[worker])
            if iterations is not None and count < iterations and not self.wrap:
                raise ConfigError(
                    f"{self.path}: has {count} run times of worker {worker}, fewer than the "
                    f"{iterations} iterations of stop.iterations; "
                    "compute.wrap: true begins again with the first"
                )
        slow = _slow_periods(self.slow, workers)
        times = [(self.scale * recorded[worker]).tolist() for worker in range(workers)]

        def run_time(worker: int, iteration: int, now: Time) -> float:
            mine = times[worker]
            if iteration >= len(mine) and not self.wrap:
                raise RunError(
                    f"compute: {self.path} has {len(mine)} run times of worker {worker}, and it "
                    f"is at iteration {iteration}; wrap: true begins again with the first"
                )
            duration_s: float = mine[iteration % len(mine)]
            return duration_s * _factor(slow, worker, now)

        return run_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a gradient takes on this computer, times `scale`.

    `samples` gradients are measured before the run, one after the other. What they took is
    `seconds` from then on, also in the run's own configuration, so that it can be repeated;
    each iteration takes one of them, drawn at random.
    """

    samples: int = 30
    scale: float = 1.0
    worker_cv: float = 0.0
    slow: tuple[Slow, ...] = field(default=())
    seconds: tuple[float, ...] = ()
    kind: Literal["measured"] = "measured"

    def __post_init__(self) -> None:
        require(0 < self.samples <= 10**6, "samples", "from 1 to 1e6", self.samples)
        require(positive(self.scale), "scale", "a positive number, at most 1e9", self.scale)
        require(not_negative(self.worker_cv), "worker_cv", "a number from 0 to 1e9", self.worker_cv)
        for place, value in enumerate(self.seconds):
            require(positive(value), f"seconds[{place}]", "positive, at most 1e9", value)

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """As `_Law.run_time`. Raises ConfigError if nothing was measured yet."""
        if not self.seconds:
            raise ConfigError("compute: nothing was measured yet")
        measured = np.array(self.seconds)
        return _drawn(
            lambda source, n: source.choice(measured, n),
            self.scale,
            self.worker_cv,
            self.slow,
            seed,
            workers,
        )


ComputeLaw: TypeAlias = (
    Constant | Normal | Lognormal | Exponential | ShiftedExponential | Regimes | Recorded | Measured
)
# Of what a server needs for a push or pull; nothing in it is about workers.
ServiceLaw: TypeAlias = Constant | Normal | Lognormal | Exponential | ShiftedExponential


def _drawn(
    draw: Draw, scale_s: float, worker_cv: float, slow: tuple[Slow, ...], seed: int, workers: int
) -> RunTime:
    """Draws times scale_s, the worker's speed and its slow periods."""
    periods = _slow_periods(slow, workers)
    speeds = generator(seed, "worker speed").normal(1.0, worker_cv, workers)
    scales = [scale_s * max(float(speed), 0.1) for speed in speeds]
    streams = [RandomStream(seed, "run time", worker, draw) for worker in range(workers)]

    def run_time(worker: int, iteration: int, now: Time) -> float:
        return scales[worker] * streams[worker][iteration] * _factor(periods, worker, now)

    return run_time


def _lognormal(cv: float) -> Draw:
    """Of mean 1 and this coefficient of variation."""
    variance = math.log1p(cv**2)  # of the logarithm
    return lambda source, n: source.lognormal(-variance / 2, math.sqrt(variance), n)


def _factor(periods: _Periods, worker: int, now: Time) -> float:
    """By how much slow periods prolong what the worker starts now."""
    factor = 1.0
    for times, start, end in periods.get(worker, ()):
        if start <= now < end:
            factor *= times
    return factor


def _slow_periods(slow: tuple[Slow, ...], workers: int) -> _Periods:
    periods: _Periods = {}
    for period in slow:
        end = math.inf if math.isinf(period.until_s) else nanoseconds(period.until_s)
        for worker in period.workers:
            if worker >= workers:
                raise ConfigError(
                    f"compute.slow: there is no worker {worker}; "
                    f"{workers} workers are numbered 0 to {workers - 1}"
                )
            periods.setdefault(worker, []).append((period.factor, nanoseconds(period.from_s), end))
    return periods
