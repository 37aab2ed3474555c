"""The rule `progress`: the setting that is predicted to make the most progress in a second.

Settings. With a quorum k an iteration of N workers ends when k of them have pushed, and drops the
other gradients (`drop-stragglers`); the quorum N is BSP. With `stale`, ASP is a setting too.

Run times. Of each worker the rule keeps the last `window` times between the start of an iteration
and its answers, without the time that servers held the pull. So it knows what an iteration takes
without waiting, whatever the setting was. T(k) is the k-th smallest of the workers' j-th last
times, averaged over j: the expected duration of an iteration that waits for k (Dutta, Joshi, Ghosh,
Dube and Nagpurkar, Slow and stale gradients can win the race, AISTATS 2018, for K-sync SGD).

Worth. A step along the mean of k gradients makes k / (k + B) of the progress of one along the true
gradient, where B is the gradient noise scale, here in gradients of one worker (McCandlish, Kaplan,
Amodei et al., An empirical model of large-batch training, 2018, section 2.2). So k gradients are
worth g(k) = B·k / (k + B): nearly k if they are few, and never more than B. The servers measure
B = E|g − G|² / |G|² for gradients g with mean G (section 2.2 and appendix A.1: the simple noise
scale), from the norms of single gradients and of their mean. Sums over iterations are divided, of
which those before the last 4 windows hardly count. While nothing is measured, B = N. Progress is

    quorum k:  g(k) / T(k)
    ASP:       R·g(N)/N / (1 + N / (N + B)),  where R = Σ 1 / (mean time of a worker)

The divisor of ASP is for staleness. About N updates are made between the read of a gradient's
parameters and its application, which is one iteration. With w ← w − ηλ·(w one iteration before),
the largest stable ηλ is 1, without the delay it is 2: progress that is limited by curvature takes
twice as many steps. Where noise limits it, delays hardly matter (Arjevani, Shamir and Srebro, A
tight convergence analysis for stochastic gradient descent with delayed updates, ALT 2020).
N / (N + B) is the share of the former.

Hysteresis. Another setting must be predicted to be ahead by `gain_percent`, and by more than 1.25
standard errors of the difference over the window, so that one slow iteration changes nothing. After
a switch the rule keeps the setting for `window` iterations, until the times are those under it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from outpace.sync.adaptive.interface import Family, Observation, Order, Setting
from outpace.sync.decision import Reason

_FEWEST: Final = 3  # iterations of each worker before the first decision
_MOST: Final = 100.0  # times N: the largest noise scale that is believed
_SURE: Final = 1.25  # standard errors; a single slow iteration is at most 1


class Progress:
    """Chooses the quorum, or ASP; see the docstring of this module.

    Args:
        window: number of iterations of each worker that are looked at, at least 3.
        gain_percent: by how much another setting must be ahead.
        noise_scale: B / N, the gradient noise scale in batches of all workers together; None: as
            it is measured.
        stale: True if ASP may be chosen.
    """

    def __init__(
        self,
        workers: int,
        window: int,
        gain_percent: float,
        noise_scale: float | None,
        *,
        stale: bool,
    ) -> None:
        self.setting = Setting(Family.QUORUM, workers)
        self._workers, self._given = workers, noise_scale
        self._noise_scale = _NoiseScale(1 - 1 / (4 * window))
        self._gain, self._stale, self._window = 1 + gain_percent / 100, stale, window
        self._times: list[deque[float]] = [deque(maxlen=window) for _ in range(workers)]
        self._unsettled = set(range(workers))  # workers with too few times
        self._left = 0  # observations until the next decision

    def observe(self, seen: Observation) -> Order | None:
        times = self._times[seen.worker]
        times.append(max(seen.busy_s, 1e-9))
        if len(times) >= _FEWEST:
            self._unsettled.discard(seen.worker)
        self._left -= 1
        if self._unsettled or self._left > 0:
            return None
        self._left = self._workers
        self._noise_scale.add(seen.noise, seen.signal)
        return self._decided()

    def _decided(self) -> Order | None:
        found = self.predicted()
        means = {setting: sum(costs) / len(costs) for setting, costs in found.items()}
        best = min(means, key=lambda setting: means[setting])
        if means[self.setting] <= means[best] * self._gain:
            return None
        pairs = zip(found[self.setting], found[best], strict=True)
        if not _is_sure([before - after for before, after in pairs]):
            return None
        figures = 1 / means[self.setting], 1 / means[best]
        self.setting, self._left = best, self._workers * self._window
        return Order(best, Reason.MORE_PROGRESS, figures)

    @property
    def noise(self) -> float:
        """B, the gradient noise scale in gradients of one worker, at least 1."""
        if self._given is not None:
            return self._given * self._workers
        found = self._noise_scale.value
        return self._workers if found is None else min(max(found, 1.0), _MOST * self._workers)

    def predicted(self) -> dict[Setting, list[float]]:
        """Return how many seconds the worth of one gradient takes, in each of the last iterations.

        The largest quorum comes first.
        """
        count, noise = self._workers, self.noise
        common = min(map(len, self._times))
        last = [list(times)[: -common - 1 : -1] for times in self._times]
        rounds = [sorted(row) for row in zip(*last, strict=True)]
        found = {
            Setting(Family.QUORUM, k): [row[k - 1] * (k + noise) / (noise * k) for row in rounds]
            for k in range(count, 0, -1)
        }
        if self._stale:
            rate = sum(len(times) / sum(times) for times in self._times)
            worth = noise / (count + noise) / (1 + count / (count + noise))
            sums = [sum(row) for row in rounds]
            found[Setting(Family.QUORUM, None)] = [
                each * common / sum(sums) / (rate * worth) for each in sums
            ]
        return found


class _NoiseScale:
    """The noise scale of the last iterations, from sums over the run. keep: share of the past."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._before = self._sums = (0.0, 0.0)

    def add(self, *sums: float) -> None:
        """Take the sums of noise and signal until now."""
        added = (now - before for now, before in zip(sums, self._before, strict=True))
        noise, signal = (self._keep * old + new for old, new in zip(self._sums, added, strict=True))
        self._before, self._sums = (sums[0], sums[1]), (noise, signal)

    @property
    def value(self) -> float | None:
        """None: nothing is measured."""
        noise, signal = self._sums
        if noise <= 0 and signal <= 0:
            return None
        return math.inf if signal <= 0 else max(0.0, noise) / signal


def _is_sure(differences: Sequence[float]) -> bool:
    """True if the mean is more than 1.25 standard errors above 0."""
    count = len(differences)
    mean = sum(differences) / count
    squares = sum((each - mean) ** 2 for each in differences)
    return mean > _SURE * math.sqrt(squares / (count - 1) / count)
