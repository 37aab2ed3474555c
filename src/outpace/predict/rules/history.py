"""The observations of a cut-off rule, from which a new rule can continue where another one was."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds

_LONGEST: Final = 1000  # iterations; a model is fitted to at most as many


class History(Rule):
    """Follows another rule, and keeps the last 1,000 iterations that it has observed.

    A rule that is resumed observes them again, without deciding. So a hedge compares its rules
    anew, and a model that was fitted in the run is fitted again.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._rows: deque[tuple[Seconds, Mask, float]] = deque(maxlen=_LONGEST)
        self._seen = 0  # iterations observed, with those that are not kept

    def begin(self) -> Wait:
        return self._rule.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._seen += 1
        self._rows.append((seconds, censored, ended_s))
        self._rule.observe(seconds, censored, ended_s)

    def tensors(self, iterations: int) -> Mapping[str, Tensor]:
        """Return what was observed of the first `iterations` iterations of a run, for a file.

        `seconds` and `censored` have shape (T, N), `ended_s` has shape (T,), `seen` has one number.
        """
        seen = min(self._seen, iterations)
        rows = list(self._rows)[: max(0, len(self._rows) - (self._seen - seen))]
        return {
            "seconds": torch.tensor(np.array([row[0] for row in rows]), dtype=torch.float64),
            "censored": torch.tensor(np.array([row[1] for row in rows]), dtype=torch.bool),
            "seen": torch.tensor([seen]),
            "ended_s": torch.tensor([row[2] for row in rows], dtype=torch.float64),
        }

    def go_on(self, tensors: Mapping[str, Tensor]) -> None:
        """Observe the iterations of `tensors()`; before the first `begin`."""
        seconds, censored = tensors["seconds"].numpy(), tensors["censored"].numpy()
        for row, cut, ended_s in zip(seconds, censored, tensors["ended_s"].tolist(), strict=True):
            self.observe(row, cut, ended_s)
        self._seen = int(tensors["seen"])
