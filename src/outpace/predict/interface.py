"""The interfaces of run-time models and cut-off rules.

A *model* is fitted once to recorded run times. Its *filter* follows a run: it observes each
iteration when the iteration has ended, and predicts the next one. A *prediction* is a joint
distribution of one iteration's run times. During that iteration it can be conditioned on which
workers have finished and which have not.

A *rule* says how long to wait in each iteration. Most rules decide from a model's predictions; some
need no model. Models and rules know nothing about shards, messages or clocks, so the same rule
decides in simulated and real runs, and for a recorded table.

Times are seconds since the iteration began, arrays have one entry per worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from outpace.predict.recorded import Mask, Nodes, Seconds


class Prediction(Protocol):
    """The joint distribution of the N run times of one iteration."""

    def sample(self, count: int) -> Seconds:
        """Return joint draws, shape (count, N), from the filter's own seeded random numbers."""

    def given(self, arrived: Seconds, elapsed_s: float) -> Prediction:
        """Return the distribution given which workers have finished.

        arrived: run times of all workers that have finished since the beginning, shape (N,); NaN
        for a worker that takes longer than `elapsed_s`.
        """


class Filter(Protocol):
    """Follows one run."""

    def observe(self, seconds: Seconds, censored: Mask) -> None:
        """Observe the next iteration, which has ended. Shapes (N,), like the rows of `RunTimes`."""

    def predict(self) -> Prediction:
        """Return a prediction of the iteration after the last observed one."""


class Model(Protocol):
    """A fitted run-time model. It never changes; equal files make equal predictions."""

    kind: ClassVar[str]

    @property
    def needs(self) -> int:
        """The number of iterations that its filter must observe before it can predict."""

    def follow(self, node: Nodes, seed: int) -> Filter:
        """Return a filter for a run. Raises ConfigError if it cannot predict these workers."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the learned tensors, for a file."""

    def settings(self) -> dict[str, Any]:
        """Return the further values that `from_parts` needs, as plain JSON data."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long an iteration stays open: until `count` or `until_s` is reached.

    An iteration always ends when all workers that can still finish have finished, and never before
    the first gradient.

    Attributes:
        count: number of gradients.
        until_s: seconds since the beginning of the iteration.
        again_s, again_count: seconds or gradients after which the rule is asked to review its
            answer.
    """

    count: float = math.inf
    until_s: float = math.inf
    again_s: float = math.inf
    again_count: float = math.inf


class Rule(Protocol):
    """Says how long to wait. Each iteration calls `begin`, perhaps `review`, and `observe`."""

    def begin(self) -> Wait:
        """Return how long the iteration that begins now stays open."""

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        """Return a new answer during the iteration, at the time that the last answer requested.

        Arguments as for `Prediction.given`. If the count is already reached or the time has passed,
        the iteration ends now. A rule that never asks for a review need not define this method.
        """
        raise AssertionError("this rule never asks for a review")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        """Observe an iteration that ended after `ended_s`, without the censored workers.

        Shapes (N,), like the rows of `RunTimes`. The time of a censored worker is the cut-off,
        which can be a little less than `ended_s`. A rule that does not learn need not define this
        method.
        """
        return
