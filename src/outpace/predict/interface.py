"""What run-time models and cut-off rules are.

A *model* is fitted once to recorded run times. It follows a run by a *filter*, which sees
each iteration when it has ended and predicts the next. A *prediction* is a joint
distribution of one iteration's run times; it can be conditioned on what has come, and on
what has not come, in the course of that iteration.

A *rule* says how long to wait in each iteration. Most rules make a decision from a model's
predictions, some need no model. Neither knows of shards, messages or clocks: the same rule
decides in a run, simulated or real, and over a recorded table.

Times are seconds since the iteration began, arrays have one entry per worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from outpace.predict.recorded.table import Mask, Nodes, Seconds


class Prediction(Protocol):
    """The joint distribution of the N run times of one iteration."""

    def sample(self, count: int) -> Seconds:
        """Joint draws, shape (count, N). The random numbers are the filter's own: seeded."""

    def given(self, arrived: Seconds, elapsed_s: float) -> Prediction:
        """The same once it is known who has come.

        arrived: shape (N,), the run times of those who have, NaN for those who take longer
        than `elapsed_s`. It is told everything since the beginning, not what is new.
        """


class Filter(Protocol):
    """Follows one run."""

    def observe(self, seconds: Seconds, censored: Mask) -> None:
        """The next iteration has ended. Shapes (N,), as the rows of `RunTimes`."""

    def predict(self) -> Prediction:
        """The iteration after the last one observed."""


class Model(Protocol):
    """A fitted run-time model. Never changes; equal bits in a file, equal predictions."""

    kind: ClassVar[str]

    @property
    def needs(self) -> int:
        """How many iterations its filter must have observed before it can predict."""

    def follow(self, node: Nodes, seed: int) -> Filter:
        """A filter of its own for a run. Raises ConfigError if it cannot serve these workers."""

    def tensors(self) -> Mapping[str, Tensor]:
        """What was learned, for a file."""

    def settings(self) -> dict[str, Any]:
        """All else that is needed to make it again (`from_parts`), as plain JSON data."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long an iteration stays open: until the first of these.

    count: so many gradients have come. until_s: so long after its beginning. Until then the
    rule is asked again (`Rule.review`) once so long has passed, or so many have come. An
    iteration always ends when all workers that can still come have come, and never before
    one has.
    """

    count: float = math.inf
    until_s: float = math.inf
    again_s: float = math.inf
    again_count: float = math.inf


class Rule(Protocol):
    """How long to wait, iteration by iteration: begin, perhaps review, observe; and again."""

    def begin(self) -> Wait:
        """The next iteration begins."""

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        """Asked again in the course of it; arguments as for `Prediction.given`.

        The answer replaces what was said before; a count that has come already, or a time
        that has passed, ends the iteration now.
        """

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        """The iteration has ended after so long, without those that are censored.

        Shapes (N,), as the rows of `RunTimes`. A censored worker may have reported more than
        `ended_s`: it was still computing when it stopped.
        """
