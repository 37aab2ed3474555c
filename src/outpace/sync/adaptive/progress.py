"""The rule `progress`: the setting that is predicted to make the most progress in a second.

Settings. With a quorum k an iteration of N workers ends when k of them have pushed, and drops the
other gradients; the quorum N is BSP. With a grace G besides, it ends G seconds after a quarter of
the workers have pushed at the latest (`partial-push`), so that workers that become slow do not hold
up a whole iteration before the rule can know. With `stale`, ASP is a setting too, and the first:
each gradient is applied on arrival, divided by its staleness (Zhang, Gupta, Lian and Liu,
Staleness-aware Async-SGD, IJCAI 2016).

`prediction` has what is expected of a setting, from the last `window` run times of each worker and
from the gradient noise scale. The servers measure B = E|g − G|² / |G|² for gradients g with mean G
(McCandlish, Kaplan, Amodei et al., An empirical model of large-batch training, 2018, section 2.2
and appendix A.1: the simple noise scale), from the norms of single gradients and of their mean.
Sums over iterations are divided, of which those before the last 4 windows hardly count. While
nothing is measured, B = N.

The choice. Of the settings that are predicted to be within 2 % of the best one, it is the one with
the largest quorum, and of these the one with the smallest grace: it leaves out no gradient without
a reason, and loses little by workers that become slow. BSP, which may lose much, is chosen only if
no other setting is as good.

Hysteresis. The setting chosen must be predicted to be ahead by `gain_percent`, and by more than
2 standard errors of the difference over the window. After such a switch the rule keeps the setting
for `window` iterations, until the times are those under it. A grace in place of BSP, or a tenth of
the one before, needs no gain: it must only not be predicted to be more than 2 % behind. So the
first switch comes when every worker has ended an iteration, and another one if that was much longer
than those that follow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from outpace.sync.adaptive.interface import (
    Family,
    Observation,
    Order,
    RuleState,
    Setting,
    early,
)
from outpace.sync.adaptive.prediction import RunTime, predicted
from outpace.sync.decision import Reason

_FEWEST: Final = 3  # iterations of each worker before a switch that needs a gain
_AS_GOOD: Final = 1.02  # in times of the best: the cost of settings that are as good
_SHORTER: Final = 10  # times: a grace that was chosen in an iteration of another length
_MOST: Final = 100.0  # times N: the largest noise scale that is believed
_SURE: Final = 2.0  # standard errors of the difference of two settings


class Progress:
    """Chooses the quorum, or ASP; see the docstring of this module.

    Args:
        window: number of iterations of each worker that are looked at, at least 3.
        gain_percent: by how much another setting must be ahead.
        noise_scale: B / N, the gradient noise scale in batches of all workers together; None: as
            it is measured.
        stale: True if ASP may be chosen; the rule begins with it.
        stops_late: True if workers stop computing what no server would take any more.
    """

    def __init__(
        self,
        workers: int,
        window: int,
        gain_percent: float,
        noise_scale: float | None,
        *,
        stale: bool,
        stops_late: bool,
    ) -> None:
        self.setting = Setting(Family.QUORUM, None if stale else workers)
        self._workers, self._given = workers, noise_scale
        self._noise_scale = _NoiseScale(1 - 1 / (4 * window))
        self._gain, self._stale, self._window = 1 + gain_percent / 100, stale, window
        self._stops_late = stops_late
        self._times: list[deque[RunTime]] = [deque(maxlen=window) for _ in range(workers)]
        self._unseen = set(range(workers))
        self._left = 0  # observations until the next decision

    def observe(self, seen: Observation) -> Order | None:
        busy_s = max(seen.busy_s, 1e-9)
        self._times[seen.worker].append(RunTime(busy_s, min(seen.compute_s, busy_s)))
        self._unseen.discard(seen.worker)
        self._left -= 1
        if self._unseen or self._left > 0:
            return None
        self._left = self._workers
        self._noise_scale.add(seen.noise, seen.signal)
        return self._decided()

    def _decided(self) -> Order | None:
        found, before = self.predicted(), self.setting
        means = {setting: sum(costs) / len(costs) for setting, costs in found.items()}
        best = self._guarded(means, min(means.values())) or min(means, key=lambda each: means[each])
        if len(found[best]) >= _FEWEST and means[before] > means[best] * self._gain:
            pairs = zip(found[before], found[best], strict=True)
            if _is_sure([old - new for old, new in pairs]):
                self._left = self._workers * self._window
                return self._order(means, best, Reason.MORE_PROGRESS)
        guarded = self._guarded(means, means[before])
        if guarded is not None and self._waits_less(before, guarded):
            return self._order(means, guarded, Reason.SLOW_NOT_AWAITED)
        return None

    def _guarded(self, means: Mapping[Setting, float], cost: float) -> Setting | None:
        """Return the largest quorum that slow workers do not hold up, at no more than about `cost`.

        Of those with this quorum, it is the one with the smallest grace. None: there is none.
        """
        most = cost * _AS_GOOD
        good = [each for each in means if means[each] <= most and self._is_guarded(each)]
        return max(good, key=lambda each: (each.value or 0, -each.grace), default=None)

    def _is_guarded(self, setting: Setting) -> bool:
        """True if an iteration ends although three quarters of the workers have become slow."""
        first = early(self._workers)
        return setting.value is None or setting.grace > 0 or setting.value <= first < self._workers

    def _waits_less(self, before: Setting, after: Setting) -> bool:
        """True if workers that become slow cost much less afterwards."""
        if not self._is_guarded(before):
            return True
        return 0 < _SHORTER * after.grace < before.grace

    def _order(self, means: Mapping[Setting, float], to: Setting, reason: Reason) -> Order:
        figures = 1 / means[self.setting], 1 / means[to]
        self.setting = to
        return Order(to, reason, figures)

    def state(self) -> RuleState:
        return {
            "value": self.setting.value,
            "grace": self.setting.grace,
            "times": [list(times) for times in self._times],
            "left": self._left,
            "noise": self._noise_scale.state(),
        }

    def restore(self, state: RuleState, places: Sequence[int | None]) -> None:
        value, before, count = state["value"], state["times"], self._workers
        if value is not None:
            value = count if value == len(before) else min(value, count)
        has_grace = value is not None and value > early(count)
        grace = state.get("grace", 0) if has_grace else 0  # older checkpoints have none
        self.setting, self._left = Setting(Family.QUORUM, value, grace), state["left"]
        for times, place in zip(self._times, places, strict=True):
            times.extend(() if place is None else map(_run_time, before[place]))
        self._unseen = {worker for worker, times in enumerate(self._times) if not times}
        self._noise_scale.restore(state["noise"])

    @property
    def noise(self) -> float:
        """B, the gradient noise scale in gradients of one worker, at least 1."""
        if self._given is not None:
            return self._given * self._workers
        found = self._noise_scale.value
        return self._workers if found is None else min(max(found, 1.0), _MOST * self._workers)

    def predicted(self) -> dict[Setting, list[float]]:
        """Return how many seconds the worth of one gradient takes, in each of the last iterations.

        Every worker must have been observed.
        """
        return predicted(
            self._times,
            self.noise,
            self.setting,
            stale=self._stale,
            stops_late=self._stops_late,
        )


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

    def state(self) -> list[list[float]]:
        return [list(self._before), list(self._sums)]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        (noise, signal), (old_noise, old_signal) = state
        self._before, self._sums = (noise, signal), (old_noise, old_signal)

    @property
    def value(self) -> float | None:
        """None: nothing is measured."""
        noise, signal = self._sums
        if noise <= 0 and signal <= 0:
            return None
        return math.inf if signal <= 0 else max(0.0, noise) / signal


def _run_time(saved: float | Sequence[float]) -> RunTime:
    """Return a run time of a checkpoint; those of older versions have no time of computing."""
    return RunTime(saved, saved) if isinstance(saved, float) else RunTime(*saved)


def _is_sure(differences: Sequence[float]) -> bool:
    """True if the mean is more than 2 standard errors above 0."""
    count = len(differences)
    mean = sum(differences) / count
    squares = sum((each - mean) ** 2 for each in differences)
    return mean > _SURE * math.sqrt(squares / (count - 1) / count)
