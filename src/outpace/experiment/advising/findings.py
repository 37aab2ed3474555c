"""The results of the trials of a study so far: learning rates, and the order of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from outpace.experiment.advising.candidates import ALL_REDUCE, BSP
from outpace.experiment.advising.curves import FRESH, SEARCH, Curve, Trial
from outpace.experiment.advising.problem import Problem
from outpace.support.estimates import TimeTo

GRID: Final = (1.0, 2.0, 0.5, 4.0, 0.25)  # learning rates, as multiples of the configured one
SEEDS: Final = 5  # number of seeds of the search
LONGEST: Final = 3.0  # horizon of a run on fresh seeds, as a multiple of BSP's time
_APART: Final = 1_000_000  # distance of the fresh seeds from the seeds of the search
_MARGIN: Final = 1.5  # a trial that takes this many times as long as the best one cannot win


@dataclass(slots=True)
class Findings:
    """The problem of a study, and the results of its trials so far.

    Attributes:
        seeds: the fresh seeds, which are not used in the search.
        horizon_s: virtual time at which a trial ends if it has not reached the target.
        most_every_s: the longest time between evaluations; None: as configured.
        left: the candidates in the last round of the search.
    """

    problem: Problem
    seeds: tuple[int, ...]
    horizon_s: float
    most_every_s: float | None = None
    left: tuple[str, ...] = ()
    _trials: dict[tuple[str, str], dict[Trial, Curve]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = self.names

    def note(self, trial: Trial, curve: Curve) -> None:
        self._trials.setdefault((trial.part, trial.candidate), {})[trial] = curve

    def of(self, part: str, name: str) -> Mapping[Trial, Curve]:
        """Return the trials of a candidate in a part of the study, see `Trial`."""
        return self._trials.get((part, name), {})

    @property
    def trials(self) -> dict[Trial, Curve]:
        return {trial: curve for own in self._trials.values() for trial, curve in own.items()}

    @property
    def level(self) -> float:
        """The score of the target."""
        return self.problem.target.level

    @property
    def search_seeds(self) -> tuple[int, ...]:
        return tuple(self.problem.seed + _APART + place for place in range(SEEDS))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the candidates, with BSP and all-reduce first."""
        return tuple(each.name for each in self.problem.candidates)

    @property
    def references(self) -> tuple[str, ...]:
        """BSP and all-reduce, which are in every round of the search."""
        return tuple(name for name in self.names if name in (BSP, ALL_REDUCE))

    @property
    def grid(self) -> tuple[float, ...]:
        """The learning rates to try; only (1.0,) if the rate of a trial cannot be set."""
        rate = self.problem.rate
        return (1.0,) if rate is None else tuple(rate * each for each in GRID)

    def logs(self, name: str, rate: float) -> dict[int, float]:
        """Return the logarithms of the times of a candidate's trials in the search, by seed.

        A trial that missed the target counts with its limit, which is a lower bound; a failed trial
        is infinitely slow.
        """
        found = {}
        for trial, curve in self.of(SEARCH, name).items():
            if trial.rate == rate:
                at = curve.crossing_s(self.level) if curve.error is None else math.inf
                found[trial.seed] = math.log(max(trial.limit_s if at is None else at, 1e-9))
        return found

    def rates(self, name: str) -> list[float]:
        """Return the learning rates that were tried, the best first; all rates if none was.

        Rates with the most seeds come first, since a round runs all its rates on the same seeds; so
        mean logarithms are compared over common seeds. Rates with which a trial failed come last.
        The score decides between trials with equal limits.
        """
        keys = {}
        for rate in self.grid:
            if own := self.logs(name, rate).values():
                mean = math.fsum(own) / len(own)
                keys[rate] = (mean == math.inf, -len(own), mean, -self._score(name, rate))
        return sorted(keys, key=keys.__getitem__) or list(self.grid)

    def gain(self, name: str) -> float:
        """Return by how much the mean log time is below BSP's, over common seeds."""
        own, bsp = (self.logs(each, self.rates(each)[0]) for each in (name, BSP))
        gains = [bsp[seed] - own[seed] for seed in own if bsp.get(seed, math.inf) < math.inf]
        return math.fsum(gains) / len(gains) if gains else -math.inf

    def ranked(self, names: Iterable[str]) -> list[str]:
        """Return the candidates with a trial that reached the target, the fastest first."""
        gains = {name: self.gain(name) for name in names}
        usable = [name for name, gain in gains.items() if gain > -math.inf]
        return sorted(usable, key=lambda n: (-gains[n], -self._score(n, self.rates(n)[0])))

    def _score(self, name: str, rate: float) -> float:
        """Return the sum of the best scores of a candidate's trials with this rate."""
        return math.fsum(c.best for t, c in self.of(SEARCH, name).items() if t.rate == rate)

    def best_s(self, names: Iterable[str] | None = None) -> float | None:
        """Return the shortest time to the target in the search; None if no trial reached it."""
        found = (
            curve.crossing_s(self.level)
            for name in names or self.names
            for curve in self.of(SEARCH, name).values()
        )
        return min((at for at in found if at is not None), default=None)

    def limit_s(self, name: str) -> float:
        """Return the virtual time at which a trial of the search ends.

        At 1.5 times the best time so far a trial can no longer win. BSP and all-reduce use their
        own best time: if the time of a faster strategy stopped them, their learning rates would not
        be known, and other strategies would seem better than they are.
        """
        best_s = self.best_s([name] if name in self.references else None)
        return self.horizon_s if best_s is None else min(self.horizon_s, _MARGIN * best_s)

    def every_s(self, points: int) -> float | None:
        """Return the time between evaluations, for `points` of them until the best time so far."""
        if self.most_every_s is None:
            return None
        every_s = min(self.most_every_s, (self.best_s() or math.inf) / points)
        return float(f"{max(1e-6, every_s):.2g}")

    # -- fresh seeds -------------------------------------------------------------------------

    def fresh_rate(self, name: str) -> float:
        """Return the learning rate for the fresh seeds.

        If training diverges on a fresh seed, it is half of the best rate. This choice depends only
        on divergence and not on times, so the times of the lower rate are not biased.
        """
        rate = self.rates(name)[0]
        own = [c for t, c in self.of(FRESH, name).items() if t.rate == rate]
        is_lowered = self.problem.rate is not None and any(c.diverged(self.level) for c in own)
        return rate / 2 if is_lowered else rate

    def used_rate(self, name: str) -> float:
        """Return the learning rate whose runs count: on fresh seeds, the rate with most runs."""
        rates = [trial.rate for trial in self.of(FRESH, name)]
        return max(sorted(set(rates)), key=rates.count, default=self.rates(name)[0])

    def on_fresh_seeds(self) -> dict[str, dict[Trial, Curve]]:
        """Return the runs on the fresh seeds that all finalists have completed, by name."""
        runs: dict[str, dict[int, Trial]] = {}
        for name in self.names:
            rate = self.used_rate(name)
            if own := {trial.seed: trial for trial in self.of(FRESH, name) if trial.rate == rate}:
                runs[name] = own
        seeds = [seed for seed in self.seeds if all(seed in own for own in runs.values())]
        if not seeds:
            return {}
        return {
            name: {own[seed]: self.of(FRESH, name)[own[seed]] for seed in seeds}
            for name, own in runs.items()
        }

    def times(self) -> dict[str, list[TimeTo]]:
        """Return the times to the target of the runs of `on_fresh_seeds`."""
        return {
            name: [curve.time_to(self.level, trial.limit_s) for trial, curve in own.items()]
            for name, own in self.on_fresh_seeds().items()
        }
