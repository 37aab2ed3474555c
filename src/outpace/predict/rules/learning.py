"""Cold start: fits a model to the beginning of the run that uses it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from outpace.errors import OutpaceError
from outpace.predict.interface import Model, Rule, Wait
from outpace.predict.models import Fitting
from outpace.predict.recorded.table import Mask, Nodes, RunTimes, Seconds

_AGAIN: Final = 3  # a fit is repeated when the run is this many times as long
_LONGEST: Final = 1000  # a model is fitted to at most the last 1,000 iterations
_SHOWN: Final = 100  # most recent iterations that a new rule observes
_COMPARED: Final = 10  # of these, the most recent ones in which it could have decided


@dataclass
class Learning(Rule):
    """Follows a rule without a model until a model is fitted, then one with it.

    The fit is repeated each time the run is three times as long as at the last fit, because the
    cluster may change after the warm-up.

    Args:
        make: makes the rule from a model and the number of iterations that it then observes,
            which are the last ones, at most 100.
        rule: decides between the warm-up and the end of the first fit, and for the rest of the
            run if that fails.
        node: the machine of each worker, shape (N,).
        warmup: number of iterations at the start that wait for all workers.
        first: number of iterations before the first fit, if there are more than in the warm-up.
        note: called with a message once the rule decides, with its first iteration.
        say: called with the reason if a fit fails.
    """

    fitting: Fitting
    make: Callable[[Model, int], Rule]
    rule: Rule
    node: Nodes
    warmup: int
    first: int = 0
    note: Callable[[str], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    _rows: deque[tuple[Seconds, Mask, float]] = field(
        default_factory=lambda: deque(maxlen=_LONGEST), init=False
    )
    _seen: int = field(default=0, init=False)  # iterations
    _fit_at: float = field(default=0, init=False)  # the iteration of the next fit
    _fits: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._fit_at = max(self.warmup, self.first)

    def begin(self) -> Wait:
        if self._fits or self._seen >= self._fit_at:
            self._learn()
        wait = self.rule.begin()  # in the warm-up, too: a hedge compares its rules
        return Wait() if self._seen < self.warmup else wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self.rule.review(arrived, elapsed_s)

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
                rule.begin()  # a hedge compares what its rules would have done
            rule.observe(seconds, censored, ended_s)
        return rule
