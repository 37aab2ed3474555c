"""Rules without a model: the rules of the papers, and rules from the last iterations.

`Fixed`, `Quorum`, `Elfving` and `Oracle` are baselines of BDSGD and PSP-SGD; `Rolling` is the naive
baseline of BDSGD. A run follows `Early` and `Rolling` before a model is fitted, and the hedge
compares them with a model (docs/adr/0007).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded import Mask, Seconds
from outpace.predict.replay import came
from outpace.predict.rules.planning import Decision, best_count

# share of the expected workers below which the remembered times are out of date
_REFUTED: Final = 0.25
_EARLY: Final = 0.25  # share of the workers after whose arrival the rule decides
_LATER: Final = 1.005  # factor by which the deadline is later than the best one
_WHOLE: Final = 20  # remembered iterations without a cut-off
_FAST: Final = 0.2  # times are taken relative to this quantile of their iteration


@dataclass(frozen=True, slots=True)
class Fixed(Rule):
    """Returns the same `Wait` in every iteration; `Fixed(Wait())` waits for all workers."""

    wait: Wait

    def begin(self) -> Wait:
        return self.wait


@dataclass(frozen=True, slots=True)
class Quorum(Rule):
    """Waits for `count` workers, then `timeout_s` seconds for others (PSP-SGD's partial push)."""

    count: int
    timeout_s: float

    def begin(self) -> Wait:
        return Wait(again_count=self.count)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return Wait(until_s=elapsed_s + self.timeout_s)


@dataclass
class Oracle(Rule):
    """Waits for the best count, given the true run times: an upper limit for other rules.

    Each call of `times` returns the times of the next iteration, shape (N,). In a run they
    contain computation only; the rule adds the time of messages and servers in the previous
    iteration, as the median over the workers that finished.
    """

    times: Callable[[], Seconds]
    _told: Seconds = field(default_factory=lambda: np.zeros(0), init=False)
    _on_top_s: float = field(default=0.0, init=False)

    def begin(self) -> Wait:
        self._told = self.times()
        order = np.sort(np.where(np.isnan(self._told), np.inf, self._told + self._on_top_s))
        return best_count(order[None]).wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        # True once the rule has begun, and so does not observe an earlier part of the run
        if len(self._told):
            on_top = (seconds - self._told)[~censored]
            self._on_top_s = max(0.0, float(np.nanmedian(on_top)))


@dataclass
class Elfving(Rule):
    """Waits for all workers during the window, then for the best count by Elfving's formula.

    The run times are taken to be normally distributed (a baseline of BDSGD):
    E[x_(j)] ≈ μ + σ Φ⁻¹((j − π/8) / (n − π/4 + 1)), with μ and σ by maximum likelihood from all
    times of the window. Order statistics are at least the smallest time of the window: for bimodal
    times σ is so large that the formula would give a first arrival near or below zero, and waiting
    for one worker would seem best.
    """

    window: int  # number of iterations
    _rows: list[Seconds] = field(default_factory=list, init=False)
    _wait: Wait = field(default=Wait(), init=False)

    def begin(self) -> Wait:
        return self._wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        if len(self._rows) < self.window:
            self._rows.append(seconds)
            if len(self._rows) == self.window:
                self._wait = best_count(expected_order(np.stack(self._rows))[None]).wait


def expected_order(times: Seconds) -> Seconds:
    """Return E[x_(1)] ≤ ... ≤ E[x_(N)] of the next row by Elfving's formula (1947).

    It is within 1.5 % of the exact value for 9 workers or more, and 2 % for fewer.

    times: shape (T, N), NaN if absent.
    """
    n = times.shape[1]
    places = (np.arange(1, n + 1) - math.pi / 8) / (n - math.pi / 4 + 1)
    scores = torch.special.ndtri(torch.from_numpy(places)).numpy()
    expected = np.nanmean(times) + np.nanstd(times) * scores
    return np.asarray(np.maximum(expected, np.nanmin(times)), dtype=np.float64)


@dataclass
class Rolling(Rule):
    """Decides from the last `iterations` as draws; the first iteration waits for all workers.

    A worker that was cut off counts with its last uncensored time, or with the cut-off if that is
    later: this is the smallest time consistent with the observations. So the count rises until the
    true times have been observed. A larger guess (`Guess`) would raise the deadline, and cost 3 to
    4 percentage points on clusters whose nodes become fast again. The time of an absent worker is
    infinite.

    The deadline does not rise in this way, because all workers seem to finish when the last
    iteration was cut off. Therefore, when fewer than a quarter of the expected workers finish by
    the deadline, the rule forgets the remembered times and waits for all workers once. Otherwise
    every iteration of a cluster that becomes slower as a whole could end after its first
    gradient, because the other workers would never be observed to finish.

    averaged: True to use a single draw, the mean time of each worker.
    """

    iterations: int
    decision: Decision
    averaged: bool = False
    _last: Seconds | None = field(default=None, init=False)  # uncensored times
    _until_s: float = field(default=math.inf, init=False)
    _counted_on: float = field(default=0.0, init=False)  # gradients expected by the deadline

    def __post_init__(self) -> None:
        self._rows: deque[Seconds] = deque(maxlen=self.iterations)

    def begin(self) -> Wait:
        self._until_s = math.inf
        if not self._rows:
            return Wait()
        rows = np.stack(self._rows)
        if self.averaged:
            rows = rows.mean(axis=0, keepdims=True)
        wait = self.decision(np.sort(rows, axis=1)).wait
        self._until_s = wait.until_s
        self._counted_on = float(np.count_nonzero(rows <= wait.until_s)) / len(rows)
        return wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        last = np.zeros_like(seconds) if self._last is None else self._last
        row = np.where(censored, np.maximum(seconds, last), seconds)
        self._rows.append(np.where(np.isnan(row), math.inf, row))
        self._last = np.where(~censored & ~np.isnan(seconds), seconds, last)
        by_then = came(seconds, censored, self._until_s)
        if self._until_s <= ended_s and by_then < _REFUTED * self._counted_on:
            self._rows.clear()


class Guess:
    """Guesses how long workers that were cut off would have taken, for `Early` and the hedge.

    The guesses come from the last 20 iterations without a cut-off (possibly the warm-up), as times
    relative to the fast workers of the iteration. The workers that were cut off, ordered by their
    last uncensored times, are spread evenly over the times that exceed their bounds. A guess is
    never below the worker's last uncensored time. This time is also relative to the fast workers,
    because all workers may have become slower or faster since then.

    If no time exceeds the bound b, nothing is known about longer times. Then a worker is assumed to
    need more than x seconds with probability b / x. With this law, and with no other, waiting
    longer for it alone neither raises nor lowers the expected gradients per second.
    """

    def __init__(self) -> None:
        self._whole: deque[Seconds] = deque(maxlen=_WHOLE)
        self._relative = np.zeros(0)  # all known relative times, ascending
        self._last: Seconds | None = None  # uncensored times, relative

    def observe(self, seconds: Seconds, censored: Mask) -> Seconds:
        """Return the times with guesses in place of bounds, shape (N,); NaN: absent."""
        there = ~np.isnan(seconds)
        last = np.zeros_like(seconds) if self._last is None else self._last
        known = np.sort(seconds[there])
        fast = known[int(_FAST * (len(known) - 1))]
        self._last = np.where(there & ~censored, seconds / fast, last)
        if not censored.any():
            self._whole.append(known / fast)
            self._relative = np.sort(np.concatenate(self._whole))
            return seconds
        cut = np.flatnonzero(censored)
        cut = cut[np.argsort(last[cut], kind="stable")]
        row = seconds.copy()
        row[cut] = np.maximum(fast * self._spread(seconds[cut] / fast), seconds[cut])
        return np.where(censored, np.maximum(row, fast * last), row)

    def _spread(self, bound: Seconds) -> Seconds:
        """Return relative times spread evenly over those above each bound."""
        place = np.searchsorted(self._relative, bound, "right")
        beyond = len(self._relative) - place
        level = (np.arange(len(bound)) + 0.5) / len(bound)
        longer = np.append(self._relative, np.inf)[place + (level * beyond).astype(np.int64)]
        return np.where(beyond > 0, longer, bound / (1 - level))


@dataclass
class Early(Rule):
    """Waits for a quarter of the workers, then decides from the last iterations' relative times.

    Times are relative to the arrival of the first quarter in their iteration. So a change that all
    workers have in common, such as longer samples or a smaller batch, has no effect: only the
    differences between workers are expected to be as in the last `iterations`. The draws for the
    decision are these relative times, multiplied by the arrival of the first quarter.

    A worker that was cut off counts with a guess (`Guess`), because its time is longer than the
    bound. If the bound counted as the time, all workers would seem to arrive at the deadline, and
    the deadline would never change. Guesses need examples, so the deadline is 0.5 % later than the
    best one: then workers that arrive just after the best deadline are observed. Otherwise the rule
    would, on average, cut off a little sooner each time.

    The first iteration waits for all workers.
    """

    iterations: int
    decision: Decision
    _guess: Guess = field(default_factory=Guess, init=False)
    _early: int = field(default=0, init=False)  # number of workers that it waits for

    def __post_init__(self) -> None:
        self._rows: deque[Seconds] = deque(maxlen=self.iterations)  # relative, ascending

    def begin(self) -> Wait:
        return Wait(again_count=self._early) if self._rows else Wait()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        here = int(np.count_nonzero(~np.isnan(arrived)))
        first_s = float(np.sort(arrived)[min(here, self._early) - 1])  # NaN last
        plan = self.decision(np.stack(self._rows) * first_s)
        return Wait(max(plan.count, here), max(first_s, _LATER * plan.until_s))

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._early = math.ceil(_EARLY * np.count_nonzero(~np.isnan(seconds)))
        row = np.sort(self._guess.observe(seconds, censored))  # NaN last
        self._rows.append(np.where(np.isnan(row), math.inf, row) / row[self._early - 1])
