"""What the trials of a search say: times to the target, learning rates, order of candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from outpace.experiment.advising.curves import Curve, Trial, projected_s

STEP: Final = 2.0  # from one learning rate to the next
_ABOUT_EQUAL: Final = 0.02  # times that differ by less than this, and by less than their error


@dataclass(slots=True)
class Known:
    """The trials of one candidate."""

    trials: dict[Trial, Curve] = field(default_factory=dict)

    @property
    def rates(self) -> list[float]:
        return sorted({trial.rate for trial in self.trials})

    def of_rate(self, rate: float) -> list[Curve]:
        return [curve for trial, curve in self.trials.items() if trial.rate == rate]


class Ranking:
    """The trials so far, and the order of candidates and learning rates that follows from them.

    Attributes:
        known: by candidate.
        best_curve: the one that reached the target first; None if none has.
        lowered: rates by candidate that diverged after the search; the next lower one is used.

    Args:
        names: of the candidates.
        rate: the configured learning rate; None: trials cannot have another one.
        seeds: of the trials; the others are compared with the first.
        level: score of the target.
    """

    def __init__(
        self, names: Sequence[str], rate: float | None, seeds: Sequence[int], level: float
    ) -> None:
        self._rate, self._seeds, self._level = rate or 1.0, seeds, level
        self.known: dict[str, Known] = {name: Known() for name in names}
        self.best_curve: Curve | None = None
        self.lowered: dict[str, float] = {}
        # Computed anew after each trial:
        self._effects: dict[int, float] = {}  # of seeds
        self._logs: dict[tuple[str, float], list[float]] = {}  # see `_values`

    def log_time(self, name: str, rate: float) -> float:
        """Return the mean logarithm of the (projected) times with this rate; inf without any.

        Without the effects of the seeds, so that rates tried on different seeds can be compared.
        """
        values = self._values(name, rate)
        return math.fsum(values) / len(values) if values else math.inf

    def _values(self, name: str, rate: float) -> list[float]:
        """Return the logarithms of the times with this rate, without the effects of the seeds."""
        if (name, rate) not in self._logs:
            self._logs[name, rate] = [
                self._log_time(trial, curve) - self._effect_of(trial.seed)
                for trial, curve in self.known[name].trials.items()
                if trial.rate == rate
            ]
        return self._logs[name, rate]

    def _log_time(self, trial: Trial, curve: Curve) -> float:
        """Return the logarithm of the time of one trial."""
        best, level = self.best_curve, self._level
        if best is None:  # none has reached the target: the best score counts
            return math.inf if curve.ended == "failed" else -curve.best
        time_s = projected_s(curve, level, best)
        return math.inf if time_s == math.inf else math.log(max(time_s, 1e-12))

    def _effect_of(self, seed: int) -> float:
        """Return by how much logarithms of times with a seed exceed those with the first seed.

        The median over all candidates and rates that were tried on both.
        """
        start = self._seeds[0]
        if seed == start:
            return 0.0
        if seed not in self._effects:
            found = []
            for known in self.known.values():
                first = {t.rate: (t, c) for t, c in known.trials.items() if t.seed == start}
                for trial, curve in known.trials.items():
                    if trial.seed == seed and trial.rate in first:
                        here = self._log_time(trial, curve)
                        there = self._log_time(*first[trial.rate])
                        if math.isfinite(here) and math.isfinite(there):
                            found.append(here - there)
            self._effects[seed] = median(found) if found else 0.0
        return self._effects[seed]

    def best_rate(self, name: str) -> float:
        """Return the learning rate to use; the configured one without trials.

        The fastest one, or the lowest that is about as fast: by less than 2 % and less than one
        standard error of the difference slower, on at least two seeds. A lower rate is farther
        from the rate at which training diverges.
        """
        if name in self.lowered:
            return self.lowered[name] / STEP
        known = self.known[name]
        if not known.trials:
            return self._rate
        fastest = self.fastest_rates(name)[0]
        time, runs = self.log_time(name, fastest), len(known.of_rate(fastest))
        for rate in known.rates:
            own = len(known.of_rate(rate))
            if rate >= fastest or not math.isfinite(time):
                break
            if own < 2 or self._share_diverged(name, rate):
                continue
            error = self._noise_of_run() * math.sqrt(1 / own + 1 / runs)
            if self.log_time(name, rate) - time <= min(error, math.log1p(_ABOUT_EQUAL)):
                return rate
        return fastest

    def lower_rate(self, name: str) -> None:
        """Take the next lower rate from now on, because training has diverged with the present."""
        self.lowered[name] = self.best_rate(name)

    def fastest_rates(self, name: str) -> list[float]:
        """Return the rates that were tried, the fastest first; after them those that diverged."""
        middle = self._rate

        def key(rate: float) -> tuple[float, ...]:
            # At equal times, the one nearest to the configured rate is first.
            near = abs(math.log(rate / middle))
            return self._share_diverged(name, rate), self.log_time(name, rate), near, rate

        return sorted(self.known[name].rates, key=key)

    def _share_diverged(self, name: str, rate: float) -> float:
        curves = self.known[name].of_rate(rate)
        return sum(curve.diverged for curve in curves) / len(curves)

    def _noise_of_run(self) -> float:
        """Return the standard deviation of a logarithm of a time, without the seed's effect.

        Pooled over all candidates and rates that were tried on several seeds; 0 without any.
        """
        squares, freedom = 0.0, 0
        for name, known in self.known.items():
            for rate in known.rates:
                values = self._values(name, rate)
                if len(values) > 1 and all(map(math.isfinite, values)):
                    mean = math.fsum(values) / len(values)
                    squares += math.fsum((value - mean) ** 2 for value in values)
                    freedom += len(values) - 1
        return math.sqrt(squares / freedom) if freedom else 0.0

    def ranked(self, *, without: Sequence[str] = ()) -> list[str]:
        """Return the names of the candidates that were tried, the best first."""
        tried = [n for n in self.known if self.known[n].trials and n not in without]
        return sorted(tried, key=lambda name: self.log_time(name, self.best_rate(name)))

    def failure(self, name: str) -> str | None:
        """Return the error if all trials of a candidate failed; else None."""
        curves = list(self.known[name].trials.values())
        if curves and all(curve.ended == "failed" for curve in curves):
            return curves[0].error
        return None

    def note(self, trial: Trial, curve: Curve) -> None:
        """Take the result of a trial."""
        self._effects.clear()
        self._logs.clear()
        self.known[trial.candidate].trials[trial] = curve
        at = curve.crossing_s(self._level)
        first_s = None if self.best_curve is None else self.best_curve.crossing_s(self._level)
        if at is not None and (first_s is None or at < first_s):
            self.best_curve = curve
