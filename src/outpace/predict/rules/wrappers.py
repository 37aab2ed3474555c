"""Rules that use another rule: after a warm-up, with a fallback, with a model fitted in the run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from outpace.errors import OutpaceError
from outpace.predict.interface import Model, Rule, Wait
from outpace.predict.models import Fitting
from outpace.predict.recorded import Mask, Nodes, RunTimes, Seconds

_T = TypeVar("_T")
_LATE: Final = 3  # number of iterations in a row, as one late iteration may be due to the host
# number of iterations that are kept; a model is fitted to at most this number
_LONGEST: Final = 1000
_AGAIN: Final = 3  # a fit is repeated when the run is this many times as long
_SHOWN: Final = 100  # number of most recent iterations that a rule with a new model observes
_COMPARED: Final = 10  # number of the most recent of these in which it could have decided


@dataclass
class Following(Rule):
    """Follows another rule; the base of the wrappers."""

    rule: Rule

    def begin(self) -> Wait:
        return self.rule.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self.rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.rule.observe(seconds, censored, ended_s)


@dataclass
class WarmUp(Following):
    """Waits for all workers while iterations are `left`, then lets the rule decide.

    The rule also observes the first iterations.
    """

    left: int

    def begin(self) -> Wait:
        return Wait() if self.left else self.rule.begin()

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.left = max(0, self.left - 1)
        self.rule.observe(seconds, censored, ended_s)


@dataclass
class Every(Following):
    """Asks the rule in every k-th iteration, and repeats its answer in the others.

    This is for a rule whose decision takes about as long as an iteration: BDSGD fixes the cut-off
    of a small network for ten iterations at a time (section 4.2). The rule must not ask for
    reviews, because a review holds for one iteration only.
    """

    iterations: int
    _left: int = field(default=0, init=False)
    _wait: Wait = field(default=Wait(), init=False)

    def begin(self) -> Wait:
        if not self._left:
            self._wait = self.rule.begin()
            self._left = self.iterations
        self._left -= 1
        return self._wait


@dataclass
class Fallback(Rule):
    """Follows `rule` until it raises an error or is late three times in a row; then `other`.

    The rule is late if observing an iteration and beginning the next takes longer than the
    first gradient took to arrive. A late answer is still used.

    Args:
        rule: None once `other` has taken over.
        other: observes every iteration; its `begin` must work at any time.
        say: called once, with the reason, when `other` takes over.
        clock: returns seconds; without a clock the rule is never late.
    """

    rule: Rule | None
    other: Rule
    say: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = lambda: 0.0
    _late: int = field(default=0, init=False)  # iterations
    _spent_s: float = field(default=0.0, init=False)
    _first_s: float = field(default=math.inf, init=False)

    def begin(self) -> Wait:
        answer = self._first(lambda rule: rule.begin())
        self._late = self._late + 1 if self._spent_s > self._first_s else 0
        if self._late == _LATE:
            self._leave(
                f"{_LATE} iterations in a row it was not ready when the first gradient came; the "
                f"last time it took {1e3 * self._spent_s:.0f} ms"
            )
        return answer or self.other.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        answer = self._first(lambda rule: rule.review(arrived, elapsed_s))
        # `other` may be asked in the middle of an iteration that it has not begun.
        return answer or self.other.begin()

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._spent_s = 0.0  # reviews do not count, because they have their own budget
        self._first_s = float(np.nanmin(seconds, initial=math.inf, where=~censored))
        self.other.observe(seconds, censored, ended_s)
        self._first(lambda rule: rule.observe(seconds, censored, ended_s))

    def _first(self, ask: Callable[[Rule], _T]) -> _T | None:
        if self.rule is None:
            return None
        start = self.clock()
        try:
            answer = ask(self.rule)
        except Exception as error:
            self._leave(f"it failed: {type(error).__name__}: {error}")
            return None
        self._spent_s += self.clock() - start
        return answer

    def _leave(self, why: str) -> None:
        self.rule, self._late = None, 0
        self.say(f"the cut-off rule is replaced by the rule of the last iterations: {why}")


@dataclass
class Learning(Following):
    """Cold start: follows a rule without a model until a model is fitted, then a rule with it.

    The fit is repeated each time the run is three times as long as at the last fit, because the
    cluster may change after the warm-up.

    Args:
        fitting: fits the models.
        make: makes the rule from a model and a number of iterations, at most 100: the rule first
            observes that many of the latest iterations.
        rule: decides between the warm-up and the end of the first fit; and for the rest of the run
            if that fit fails.
        node: the machine of each worker, shape (N,).
        warmup: number of iterations at the start that wait for all workers.
        first: number of iterations before the first fit, if it is larger than the warm-up.
        note: called with a message after each fit; it names the model, and the first iteration
            that the model decides.
        say: called with the reason if a fit fails.
    """

    fitting: Fitting
    make: Callable[[Model, int], Rule]
    node: Nodes
    warmup: int
    first: int = 0
    note: Callable[[str], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    _rows: deque[tuple[Seconds, Mask, float]] = field(
        default_factory=lambda: deque(maxlen=_LONGEST), init=False
    )
    # number of observed iterations, including those that are not kept
    _seen: int = field(default=0, init=False)
    _fit_at: float = field(default=0, init=False)  # the iteration of the next fit
    _fits: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._fit_at = max(self.warmup, self.first)

    def begin(self) -> Wait:
        if self._fits or self._seen >= self._fit_at:
            self._learn()
        wait = self.rule.begin()  # also in the warm-up, because a hedge compares its rules
        return Wait() if self._seen < self.warmup else wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._seen += 1
        self._rows.append((seconds, censored, ended_s))
        self.rule.observe(seconds, censored, ended_s)

    def _learn(self) -> None:
        """Start a fit if one is due, and use a finished one."""
        try:
            if not self._fits:
                self._fit_at, self._fits = _AGAIN * self._seen, True
                seconds, censored, _ = map(np.array, zip(*self._rows, strict=True))
                self.fitting.start(RunTimes(seconds, censored, self.node))
            if not self.fitting.done():
                return
            model = self.fitting.model
            assert model is not None
            self.rule = self._made(model)
        except Exception as error:
            instead = "the earlier one" if self.fitting.model else "the last iterations"
            known = isinstance(error, OutpaceError)
            why = str(error) if known else f"{type(error).__name__}: {error}"
            self.say(f"no model could be fitted, {instead} will decide: {why}")
            self._fit_at = np.inf
        else:
            fitted_to = self._fit_at // _AGAIN
            self.note(
                f"a {model.kind} model was fitted to {min(fitted_to, _LONGEST)} iterations; "
                f"it decides from iteration {self._seen} on"
            )
        self._fits = False

    def _made(self, model: Model) -> Rule:
        shown = list(self._rows)[-_SHOWN:]
        rule = self.make(model, len(shown))
        for left, (seconds, censored, ended_s) in zip(range(len(shown), 0, -1), shown, strict=True):
            if left <= _COMPARED:
                rule.begin()  # a hedge compares the results that its rules would have had
            rule.observe(seconds, censored, ended_s)
        return rule
