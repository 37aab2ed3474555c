"""Three clusters with the run times that BDSGD describes, and their laws.

i: 158 workers on 4 nodes, 0.25 s, a node slow for a time; ii: 2175 workers whose times drift, with
stragglers, at three speeds of network; iii (ours): 16 nodes of 10 workers, each of which switches
between normal and slow. A cluster (the speeds of its workers, the behaviour of its nodes) is always
the same; the seed is the seed of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
import torch
from benchmarks.papers.bdsgd.cut_offs.truth import Law
from numpy.typing import NDArray

from outpace.predict.recorded import RunTimes

Array = NDArray[np.float64]
Event = tuple[int, int, int, float]  # node, first and last iteration, how many times slower

PAPERS_EVENT: Final[Event] = (0, 0, 75, 2.0)
BASE_S: Final = 0.25
NOISE: Final = 0.03
STRAGGLE: Final = 0.005  # a worker takes 1.3 to 2 times as long, by itself


@dataclass(frozen=True, eq=False)
class Recorded:
    """A run's true times, shape (T, N); the law of iteration t given all before it, if known."""

    seconds: Array
    node: NDArray[np.int64]
    law: Callable[[int], Law] | None = None

    @property
    def times(self) -> RunTimes:
        return RunTimes(self.seconds, np.zeros(self.seconds.shape, dtype=bool), self.node)


def four_nodes(iterations: int, seed: int, events: Sequence[Event] = (PAPERS_EVENT,)) -> Recorded:
    """Return a run of cluster i."""
    node = np.repeat(np.arange(4), [40, 40, 39, 39])
    speed = np.random.default_rng(158).normal(0, 0.02, len(node))
    factor = np.ones((iterations, 4))
    for which, first, last, slower in events:
        factor[first:last, which] *= slower
    random = np.random.default_rng(seed)
    seconds = BASE_S * factor[:, node] * np.exp(speed) * _own(random, (iterations, len(node)))
    law = partial(_four_nodes_law, np.log(BASE_S) + speed, node, factor)
    return Recorded(seconds, node, law)


def random_events(iterations: int, random: np.random.Generator) -> list[Event]:
    """Return one or two slow times of random nodes, for a run that models are fitted to."""
    events = []
    for _ in range(random.integers(1, 3)):
        first = 0 if random.random() < 0.4 else int(random.integers(0, iterations - 40))
        last = min(iterations, first + int(random.integers(40, 100)))
        events.append((int(random.integers(4)), first, last, random.uniform(1.6, 2.4)))
    return events


def _four_nodes_law(usual: Array, node: NDArray[np.int64], factor: Array, t: int) -> Law:
    """Return the law of iteration t if nodes slow down and recover at random."""
    was = factor[max(t - 1, 0)]
    slower = np.linspace(1.6, 2.4, 9)
    change = np.where(was > 1, 1 / 70, 1.5 / 4 / len(factor))
    regimes = np.column_stack([was, np.where(was > 1, 1.0, was), np.tile(slower, (len(was), 1))])
    p = np.zeros_like(regimes)
    p[:, 0] = 1 - change
    p[:, 1] = np.where(was > 1, change, 0)
    p[:, 2:] = np.where(was > 1, 0, change)[:, None] / len(slower)
    return _law(usual, node, regimes, p)


def switching_nodes(iterations: int, seed: int) -> Recorded:
    """Return a run of cluster iii."""
    nodes, each = 16, 10
    node = np.repeat(np.arange(nodes), each)
    habits = np.random.default_rng(160)
    leave = 1 / habits.uniform(10, 30, (nodes, 2))  # normal, slow
    speed = habits.normal(0, 0.02, len(node))
    random = np.random.default_rng(seed)
    slow = np.empty((iterations + 1, nodes), dtype=bool)
    factor = np.empty((iterations + 1, nodes))
    slow[0], factor[0] = random.random(nodes) < 0.5, random.uniform(1.5, 3, nodes)
    for t in range(iterations):
        switch = random.random(nodes) < np.where(slow[t], leave[:, 1], leave[:, 0])
        slow[t + 1] = slow[t] ^ switch
        factor[t + 1] = np.where(switch & ~slow[t], random.uniform(1.5, 3, nodes), factor[t])
    regime = np.where(slow[1:], factor[1:], 1.0)[:, node]
    seconds = BASE_S * regime * np.exp(speed) * _own(random, (iterations, len(node)))

    def law(t: int) -> Law:
        fresh = np.linspace(1.5, 3, 31)
        regimes = np.column_stack([np.ones(nodes), factor[t], np.tile(fresh, (nodes, 1))])
        change = np.where(slow[t], leave[:, 1], leave[:, 0])
        p = np.zeros_like(regimes)
        p[:, 0] = np.where(slow[t], change, 1 - change)
        p[:, 1] = np.where(slow[t], 1 - change, 0)
        p[:, 2:] = np.where(slow[t], 0, change)[:, None] / len(fresh)
        return _law(np.log(BASE_S) + speed, node, regimes, p)

    return Recorded(seconds, node, law)


_KEEP: Final = 0.9  # of a drift from one iteration to the next
_STAY: Final = 0.3  # a straggler straggles again
_LEAST: Final = 0.5  # of the mean slowdown, for every straggler; the rest is exponential
# Parts of the spread: what all workers share, drifts of workers, and independent noise. The rest
# is drifts of nodes: with the published deviation, workers that are independent of each other
# would have their best cut-off at 2155 of 2175 for the slowest network, not at 2172.
_SHARED: Final = 0.3
_OWN: Final = 0.15
_NOISE: Final = 0.25
_NODES: Final = sqrt(1 - _SHARED**2 - _OWN**2 - _NOISE**2)


@dataclass(frozen=True)
class Speed:
    """The law of the run times of one network on cluster ii.

    The paper (figure 1) states mean_s and deviation_s of all workers in all iterations; fewest and
    most, the bounds of the share of workers that straggle; and oracle, the cut-off with the highest
    throughput. We chose slower, the mean relative slowdown of a straggler, and lean, which moves
    their share towards `most` (0: halfway), such that the best cut-off equals the oracle's.
    """

    mean_s: float
    deviation_s: float
    fewest: float
    most: float
    oracle: int
    slower: float
    lean: float = 0.0

    @property
    def share(self) -> float:
        """Mean share of the workers that straggle."""
        # The mean of Φ(z + lean) over standard normal z is Φ(lean / √2).
        return self.fewest + (self.most - self.fewest) * NormalDist().cdf(self.lean / sqrt(2))

    @property
    def spread(self) -> float:
        """Standard deviation of the log time without slowdowns, so that `deviation_s` results.

        A time is lognormal times 1 + B·M, where B is 1 for a straggler and M its slowdown, of
        mean m and variance ((1 − _LEAST)·m)²; the square of the relative deviation plus 1 is
        exp(spread²)·E[(1 + B·M)²] / E[1 + B·M]².
        """
        m = self.slower
        square = 1 + 2 * self.share * m + self.share * m**2 * (1 + (1 - _LEAST) ** 2)
        relative = 1 + (self.deviation_s / self.mean_s) ** 2
        return sqrt(log(relative * (1 + self.share * m) ** 2 / square))

    @property
    def usual_s(self) -> float:
        """Median time without slowdowns, so that the mean is `mean_s`."""
        return self.mean_s / (1 + self.share * self.slower) / exp(self.spread**2 / 2)


SPEEDS: Final = {
    "5.34": Speed(5.34, 0.13, 0.01, 0.02, 2172, slower=0.008),
    "2.83": Speed(2.83, 0.077, 0.02, 0.04, 2095, slower=0.108, lean=0.8),
    "0.24": Speed(0.24, 0.018, 0.08, 0.12, 2004, slower=0.182),
}


def drifting(iterations: int, seed: int, speed: Speed) -> Recorded:
    """Return a run of cluster ii, whose speeds and share of stragglers drift."""
    workers, nodes = 2175, 32
    node = np.arange(workers) // 68
    prone = np.random.default_rng(2175).gamma(4, 1 / 4, nodes)
    prone /= prone.mean()
    random = np.random.default_rng(seed)
    shared = _drift(random, iterations, (), _SHARED * speed.spread)
    of_node = _drift(random, iterations, (nodes,), _NODES * speed.spread)
    own = _drift(random, iterations, (workers,), _OWN * speed.spread)
    mood = _drift(random, iterations, (), 1.0)
    share = _share(mood, speed)
    straggles = np.empty((iterations + 1, workers), dtype=bool)
    straggles[0] = random.random(workers) < speed.share
    for t in range(iterations):
        anew = _anew(share[t + 1]) * prone[node]
        straggles[t + 1] = random.random(workers) < np.where(straggles[t], _STAY, anew)
    shape = iterations, workers
    noise = random.normal(0, _NOISE * speed.spread, shape)
    more = speed.slower * (_LEAST + (1 - _LEAST) * random.exponential(1, shape))
    log_time = shared[1:, None] + of_node[1:, node] + own[1:] + noise
    seconds = speed.usual_s * np.exp(log_time) * (1 + straggles[1:] * more)

    fresh = sqrt(1 - _KEEP**2)
    points, weights = np.polynomial.hermite_e.hermegauss(7)
    quantiles = (np.arange(8) + 0.5) / 8
    longer = speed.slower * (_LEAST - (1 - _LEAST) * np.log1p(-quantiles))
    offsets = np.append(0, np.log1p(longer))

    def law(t: int) -> Law:
        expected = _anew(_share(_KEEP * mood[t] + fresh * points, speed)) @ weights / weights.sum()
        p = np.where(straggles[t], _STAY, expected * prone[node])
        shifts = fresh * points * speed.spread
        return Law(
            usual=np.log(speed.usual_s) + _KEEP * (shared[t] + of_node[t, node] + own[t]),
            deviation=speed.spread * sqrt(_NOISE**2 + (_OWN * fresh) ** 2),
            node=node,
            shared=_SHARED * shifts,
            shared_logp=np.log(weights),
            regimes=np.tile(_NODES * shifts, (nodes, 1)),
            regimes_logp=np.tile(np.log(weights), (nodes, 1)),
            offsets=offsets,
            offsets_logp=np.log(np.column_stack([1 - p, np.tile(p[:, None] / 8, 8)])),
        )

    return Recorded(seconds, node, law)


def _law(usual: Array, node: NDArray[np.int64], regimes: Array, p: Array) -> Law:
    """Return the law of nodes with these regimes, and workers as in clusters i and iii."""
    factors = 1.3 + 0.7 * (np.arange(8) + 0.5) / 8
    offsets_p = np.append(1 - STRAGGLE, np.full(8, STRAGGLE / 8))
    with np.errstate(divide="ignore"):
        logp = np.log(p)
    return Law(
        usual=usual,
        deviation=NOISE,
        node=node,
        shared=np.zeros(1),
        shared_logp=np.zeros(1),
        regimes=np.log(regimes),
        regimes_logp=logp,
        offsets=np.append(0, np.log(factors)),
        offsets_logp=np.tile(np.log(offsets_p), (len(usual), 1)),
    )


def _own(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return the independent random factor of each worker's time."""
    straggles = random.random(shape) < STRAGGLE
    return np.exp(random.normal(0, NOISE, shape)) * np.where(
        straggles, random.uniform(1.3, 2, shape), 1
    )


def _drift(
    random: np.random.Generator, iterations: int, shape: tuple[int, ...], deviation: float
) -> Array:
    """Return a stationary autoregression that starts one iteration early."""
    noise = random.normal(0, deviation, (iterations + 1, *shape))
    noise[1:] *= sqrt(1 - _KEEP**2)
    for t in range(iterations):
        noise[t + 1] += _KEEP * noise[t]
    return noise


def _share(mood: Array, speed: Speed) -> Array:
    """Return the share of workers that straggle."""
    between = torch.special.ndtr(torch.as_tensor(mood + speed.lean)).numpy()
    return speed.fewest + (speed.most - speed.fewest) * between


def _anew(share: Array) -> Array:
    """Return the probability to begin to straggle that leads to this share of stragglers."""
    return (1 - _STAY) * share / (1 - share)
