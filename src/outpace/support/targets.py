"""The target quality of the model in comparisons of runs, and when a run reaches it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import Positive, Share, check_ranges


@dataclass(frozen=True, slots=True)
class Target:
    """The target quality of the model in a comparison: an accuracy or a loss.

        outpace.Target(accuracy=0.9)

    A run reaches the target with its first evaluation, or its first value logged by a script, that
    is good enough. The run then continues; only `Stop.target_accuracy` ends a run. Exactly one
    argument must be given.

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
        """The column of metrics.parquet with this quality."""
        return "train_loss" if self.accuracy is None else "accuracy"

    @property
    def value(self) -> float:
        """The accuracy or the loss."""
        return self.level if self.loss is None else self.loss

    @property
    def level(self) -> float:
        """The lowest score that reaches the target, see `score`."""
        if self.loss is not None:
            return -self.loss
        assert self.accuracy is not None
        return self.accuracy

    def score(self, accuracy: float | None, train_loss: float | None) -> float | None:
        """Return the quality of an evaluation as a number; larger is better.

        Args:
            accuracy: accuracy in [0, 1] of the evaluation; None: unknown.
            train_loss: training loss of the evaluation; None: unknown.

        Returns:
            The accuracy, or the negative training loss for a target that is a loss; None if the
            value is unknown or not finite.
        """
        value = accuracy
        if self.accuracy is None:
            value = None if train_loss is None else -train_loss
        return value if value is not None and math.isfinite(value) else None

    def is_reached(self, accuracy: float | None, train_loss: float | None) -> bool:
        """Return True if an evaluation reaches the target.

        Args:
            accuracy: accuracy in [0, 1] on the curve of a run (`record.curves`); None: unknown.
            train_loss: training loss on this curve; None: unknown.
        """
        score = self.score(accuracy, train_loss)
        return score is not None and score >= self.level
