"""A sequential test that names slow units, with a bounded chance of naming any wrongly.

A unit is named when its evidence (see `evidence`) is so large that any of N equal units would
reach it, at any time of the run, with a chance of at most FAMILY_ERROR / 2, and its run times are
at least LEAST_FACTOR times as long as those of the others: in the long run the evidence finds the
smallest difference between two machines. The factor is estimated from the middle half of the
differences to the median of the others. A named unit no longer counts among the others, and their
past is judged anew without it, as in a step-down test (Holm, A simple sequentially rejective
multiple test procedure, Scandinavian Journal of Statistics 6, 1979): else slow units hide each
other.

The period of a named unit begins where the product of its bets up to now is the largest. It ends
when a CUSUM (Page, Continuous inspection schemes, Biometrika 41, 1954) of the likelihood ratio of a
normal speed to the slow one reaches log(2 N n^2 / FAMILY_ERROR) after n iterations. A single run
time that is too long to belong to the others is a pause (see `pauses`).

What the test cannot do: of two units it names the slower one, although the other may be fast. Of
three or four, of which one is fast and run times vary by 10 %, it may name a normal one. If half of
the units or more are slow, they are the others. Run times that depend on those before, such as by
the heat of a machine, are no noise: such slow periods are named.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.slow.evidence import FIRST, LEAST_DEVIATION, LIMIT, Evidence
from outpace.predict.slow.medians import (
    deviation_of,
    median,
    median_of_others,
    middle_mean,
)
from outpace.predict.slow.pauses import Kept, Pauses
from outpace.predict.slow.period import SlowPeriod, merged
from outpace.predict.slow.placing import placed_again

Floats = NDArray[np.float64]

FAMILY_ERROR: Final = 0.01  # chance that any of equal units is named: half periods, half pauses
LEAST_FACTOR: Final = 1.1  # a unit that takes less than this multiple of the others is not named
_KEPT: Final = 512  # rows, from which begin and factor are estimated
_WINDOW: Final = 64  # rows, over which the standard deviation is averaged


class Detector:
    """Takes the run times of all units, iteration by iteration, and names those that are slow.

    `periods` has what was found so far. A pause is a period of one iteration.

    Args:
        units: Number of units, N.
        least_factor: A unit that takes less than this multiple of the others is not named.
        error: Chance that any of equal units is named in the whole run.
    """

    def __init__(
        self, units: int, least_factor: float = LEAST_FACTOR, error: float = FAMILY_ERROR
    ) -> None:
        self.periods: list[SlowPeriod] = []
        self._units, self._least = units, math.log(least_factor)
        self._error = error / 2
        self._enough = units / self._error
        self._rows = 0
        self._evidence = Evidence(units)
        self._pauses = Pauses(units, self._error)
        self._usual = np.ones(units, np.bool_)  # not named at present
        self._deviation = 0.0
        self._before: Floats | None = None  # the last row, from its median
        self._logs: deque[Floats] = deque(maxlen=_KEPT)
        self._scores: deque[Floats] = deque(maxlen=_KEPT)
        self._iterations: deque[int] = deque(maxlen=_KEPT)
        self._look_at = np.zeros(units, np.int64)  # row from which on a factor is estimated again
        self._open: dict[int, _Open] = {}

    def step(self, iteration: int, seconds: Floats) -> list[SlowPeriod]:
        """Take the run times of an iteration, shape (N,); return the periods named by it.

        NaN: the unit has no run time. Times that are not positive count as such.
        """
        if self._units < 2:
            return []
        self._rows += 1
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(np.where(seconds > 0, seconds, np.nan))
        there = ~np.isnan(logs)
        compared = self._usual & there
        count = int(compared.sum())
        residuals = logs - median(logs[compared]) if count else np.full(self._units, np.nan)
        scale = self._scale(count)
        scores = np.clip(residuals / scale, -LIMIT, LIMIT)
        self._logs.append(logs)
        self._scores.append(scores)
        self._iterations.append(iteration)
        named: list[SlowPeriod] = []
        if self._open and count:
            self._end(scores)
        if self._rows >= FIRST and count > 1:
            self._evidence.bet(scores, compared, self._rows)
            named = self._candidates(compared)
            for period in named:
                self._usual[period.unit] = False
                self._open[period.unit] = _Open(period, self._slower(period.factor))
            if named:
                self._evidence.judge_anew(self._scores, self._rows, self._usual)
        if count > 1:
            kept = Kept(self._iterations, self._logs, self._usual, self.periods + named)
            named += self._pauses.step(kept, compared, self._rows)
        self.periods += named
        if count > 1:  # after the bets, which may depend on rows before only
            self._measure(residuals, compared)
        return named

    @property
    def slow_now(self) -> list[SlowPeriod]:
        """The periods that have not ended."""
        return [opened.period for opened in self._open.values()]

    def _scale(self, others: int) -> float:
        """Return the standard deviation of a difference to the median of so many others."""
        return max(self._deviation, LEAST_DEVIATION) * (2 if others == 1 else 1)

    def _slower(self, factor: float) -> float:
        """Return a factor in standard deviations."""
        return min(max(math.log(factor) / self._scale(int(self._usual.sum())), 0.5), LIMIT)

    # -- periods -----------------------------------------------------------------------------

    def _measure(self, residuals: Floats, compared: NDArray[np.bool_]) -> None:
        """Update the standard deviation of the noise, from differences between two iterations."""
        before, self._before = self._before, residuals
        if before is None:
            return
        steps = np.abs(residuals - before)[compared]
        steps = steps[~np.isnan(steps)]
        if not len(steps):
            return
        step = deviation_of(steps)
        if not self._deviation:
            self._deviation = max(step, LEAST_DEVIATION / 10)
        else:
            step = min(step, 4 * self._deviation)
            self._deviation += (step - self._deviation) / min(self._rows - 1, _WINDOW)

    def _candidates(self, compared: NDArray[np.bool_]) -> list[SlowPeriod]:
        """Return the periods of the units for which there is enough evidence."""
        enough = (self._evidence.of_units >= self._enough) & compared
        if not enough.any():
            return []
        found = []
        for unit in np.flatnonzero(enough & (self._look_at <= self._rows)).tolist():
            begin = self._evidence.begin(unit, self._scores, self._rows, self._usual)
            factor = self._factor(unit, begin)
            if factor < self._least:
                length = len(self._scores) - begin
                self._look_at[unit] = self._rows + 1 + length // 10
                continue
            first, now = self._iterations[begin], self._iterations[-1]
            found.append(SlowPeriod(unit, first, None, now, math.exp(factor)))
        return found

    def _factor(self, unit: int, begin: int, end: int | None = None) -> float:
        """Return the logarithm of the factor from a kept row on, up to before another."""
        logs = np.array(self._logs)[begin:end]
        others = self._usual.copy()
        others[unit] = False
        return middle_mean(logs[:, unit] - median_of_others(logs[:, others]))

    def _end(self, scores: Floats) -> None:
        """Close the periods of units that are as fast as the others again."""
        for unit, opened in list(self._open.items()):
            if math.isnan(scores[unit]):
                continue
            opened.add(float(scores[unit]), self._iterations[-1])
            needed = math.log(self._enough) + 2 * math.log(opened.count)
            if opened.sum > needed:
                self._set_factor(opened.period, opened.last_slow)
                opened.period.last = opened.last_slow
                del self._open[unit]
                self._usual[unit] = True
                self._evidence.forget(unit, self._rows)
            elif opened.count & (opened.count - 1) == 0:  # 1, 2, 4, ...: the estimate is better
                self._set_factor(opened.period, self._iterations[-1])
                opened.slower = self._slower(opened.period.factor)

    def _set_factor(self, period: SlowPeriod, last: int) -> None:
        """Estimate the factor of a period from the kept rows up to the iteration `last`."""
        places = [k for k, each in enumerate(self._iterations) if period.first <= each <= last]
        if places:
            factor = self._factor(period.unit, places[0], places[-1] + 1)
            period.factor = math.exp(max(factor, self._least))


class _Open:
    """A period that has not ended, and the evidence that the unit is as fast as the others."""

    def __init__(self, period: SlowPeriod, slower: float) -> None:
        self.period, self.slower = period, slower  # slower: in standard deviations
        self.sum, self.count, self.last_slow = 0.0, 0, period.named

    def add(self, score: float, iteration: int) -> None:
        """Add the logarithm of the likelihood ratio of a normal speed to the slow one."""
        self.count += 1
        self.sum += self.slower * (self.slower / 2 - score)
        if self.sum <= 0:
            self.sum, self.last_slow = 0.0, iteration


def detected(
    seconds: Floats, least_factor: float = LEAST_FACTOR, error: float = FAMILY_ERROR
) -> list[SlowPeriod]:
    """Return the slow periods in a table of run times, by unit and begin, placed by all rows.

    Args:
        seconds: Shape (T, N); NaN where a unit has no run time.
        least_factor, error: As for `Detector`.
    """
    detector = Detector(seconds.shape[1], least_factor, error)
    for iteration, row in enumerate(seconds):
        detector.step(iteration, row)
    return placed_again(seconds, merged(detector.periods), math.log(least_factor), error)
