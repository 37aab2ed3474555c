"""A cold start: the model is fitted to the beginning of the run that it then decides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outpace.predict.fitting import Fitting
from outpace.predict.interface import Model, Rule, Wait
from outpace.runtimes.table import Mask, Nodes, RunTimes, Seconds


class Learning:
    """Waits for all at first; follows the rule that `make` makes once a model is fitted to that.

    While the fit goes on, and for good if it fails, `meanwhile` decides. The rule that is
    made has then observed the whole run. `note` is told from which iteration on it decides,
    `say` why it never will.
    """

    def __init__(
        self,
        fitting: Fitting,
        make: Callable[[Model], Rule],
        meanwhile: Rule,
        *,
        node: Nodes,
        warmup: int,
        note: Callable[[str], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._fitting, self._make = fitting, make
        self._meanwhile = self._rule = meanwhile
        self._node, self._warmup = node, warmup
        self._note, self._say = note, say
        self._rows: list[tuple[Seconds, Mask, float]] = []
        self._learns = True

    def begin(self) -> Wait:
        if self._learns and len(self._rows) >= self._warmup:
            self._learn()
        return Wait() if len(self._rows) < self._warmup else self._rule.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        if self._learns:
            self._rows.append((seconds, censored, ended_s))
        self._rule.observe(seconds, censored, ended_s)

    def _learn(self) -> None:
        """Begin the fit, or see whether it is done."""
        try:
            if len(self._rows) == self._warmup:
                self._fitting.start(self._history())
            model = self._fitting.model()
            if model is None:
                return
            rule = self._make(model)
            for row in self._rows:
                rule.observe(*row)
        except Exception as error:
            self._say(f"no model could be fitted, the last iterations decide: {error}")
        else:
            self._rule = rule
            self._note(
                f"a {model.kind} model was fitted to the first {self._warmup} iterations; "
                f"it decides from iteration {len(self._rows)} on"
            )
        self._learns = False

    def _history(self) -> RunTimes:
        seconds, censored, _ = zip(*self._rows, strict=True)
        return RunTimes(np.array(seconds), np.array(censored), self._node)
