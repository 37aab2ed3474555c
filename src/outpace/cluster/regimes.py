"""Run times on nodes that switch between fast and slow regimes."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from outpace.cluster.laws import Draw, RunTime, Spread, lognormal
from outpace.support.checks import Count, Period, Positive, check_ranges
from outpace.support.randomness import generator
from outpace.support.units import Time, nanoseconds


@dataclass(frozen=True, slots=True)
class Regime:
    """A state of a node.

    Args:
        factor: The workers of the node take `factor` times as long.
        dwell_s: Mean duration in seconds.
    """

    factor: Positive
    dwell_s: Period

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regimes(Spread):
    """Run times on nodes that switch between regimes.

    Each node has a Markov chain in continuous time: a regime lasts an exponential time with mean
    dwell_s, and the next regime is any of the others with equal probability. So the share of time
    in a regime is its dwell_s divided by the sum of all dwell_s. An iteration takes mean_s times
    the factor of the regime in which it starts, times a log-normal factor with mean 1 and `cv`.

    Args:
        regimes: At least two regimes.
        workers_per_node: Number of consecutive workers that share a node.
    """

    regimes: Annotated[tuple[Regime, ...], Field(min_length=2)]
    workers_per_node: Count = 1
    kind: Literal["regimes"] = "regimes"

    def shape(self) -> Draw:
        return lognormal(self.cv)

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        within = super(Regimes, self).run_time(seed, workers, iterations)
        count = math.ceil(workers / self.workers_per_node)
        nodes = [_Switching(self.regimes, generator(seed, "regime", node)) for node in range(count)]

        def run_time(worker: int, iteration: int, now: Time) -> float:
            factor = nodes[worker // self.workers_per_node].factor(now)
            return within(worker, iteration, now) * factor

        return run_time


class _Switching:
    """The regimes of one node, drawn up to the last requested time."""

    def __init__(self, regimes: tuple[Regime, ...], source: np.random.Generator) -> None:
        self._regimes, self._source = regimes, source
        shares = np.array([regime.dwell_s for regime in regimes])
        first = int(source.choice(len(regimes), p=shares / shares.sum()))  # stationary
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
