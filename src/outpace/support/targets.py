"""The quality of the model that runs are judged by, and when a run reaches it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import Positive, Share, check_ranges


@dataclass(frozen=True, slots=True)
class Target:
    """The quality of the model that a comparison is judged by: an accuracy or a loss.

    A run reaches the target at the first evaluation that shows it, or the first value that its
    script logs, and continues; only `Stop.target_accuracy` ends a run. Exactly one argument must be
    given.

    Args:
        accuracy: lowest test accuracy that reaches the target, in (0, 1].
        loss: highest training loss that reaches the target.
    """

    accuracy: Share | None = None
    loss: Positive | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.accuracy is None) == (self.loss is None):
            raise ValueError("needs exactly one of accuracy and loss")

    @property
    def column(self) -> Literal["accuracy", "train_loss"]:
        """The column of metrics.parquet that shows it."""
        return "train_loss" if self.accuracy is None else "accuracy"

    @property
    def value(self) -> float:
        """The accuracy or the loss."""
        return self.level if self.loss is None else self.loss

    @property
    def level(self) -> float:
        """The score that reaches the target, see `score`."""
        if self.loss is not None:
            return -self.loss
        assert self.accuracy is not None
        return self.accuracy

    def score(self, accuracy: float | None, train_loss: float | None) -> float | None:
        """Return the quality of an evaluation as a number of which more is better.

        It is the accuracy, or the training loss with a minus; None if the evaluation has no such
        value, or it is not finite.
        """
        value = accuracy
        if self.accuracy is None:
            value = None if train_loss is None else -train_loss
        return value if value is not None and math.isfinite(value) else None

    def is_reached(self, accuracy: float | None, train_loss: float | None) -> bool:
        """Return True if values on the curve of a run (`record.curves`) reach the target."""
        score = self.score(accuracy, train_loss)
        return score is not None and score >= self.level
