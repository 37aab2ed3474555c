"""What takes the steps: an aggregated gradient in, other parameters out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeAlias

import torch

from outpace.blocks.block import StepSettings
from outpace.blocks.pieces import Pieces
from outpace.blocks.sums import Gradient
from outpace.errors import ConfigError
from outpace.optim.schedules import ConstantRate, Schedule
from outpace.support.checks import not_negative, positive, require

# (gradient, divisor, settings, progress) -> parameters changed in place by a step along
# gradient / divisor, with the settings of a user's optimizer if there are any. progress:
# the iterations that were taken before, in fractions where each gradient is a step.
Step: TypeAlias = Callable[[Gradient, float, StepSettings | None, float], None]


class Optimizer(Protocol):
    """Makes steps."""

    def refusal(self, settings: StepSettings | None) -> str:
        """Why a push may not come with these; empty if it may."""

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        """What takes one step on these parameters (1-D, changed in place).

        layers: the parts of them that belong to one parameter tensor each; none: one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater(ABC):
    """What the optimizers of a configuration have in common.

    The learning rate is lr times the schedule's factor. reference_batch: lr is meant for
    this many samples per iteration, and grows in proportion where there are more (the
    linear scaling rule of Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.1).
    Raises ValueError unless lr and reference_batch > 0 and weight_decay >= 0.
    """

    kind: str = ""
    lr: float = 0.1
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=ConstantRate)
    reference_batch: int | None = None

    def __post_init__(self) -> None:
        require(positive(self.lr), "lr", "a positive number, at most 1e9", self.lr)
        decay = self.weight_decay
        require(not_negative(decay), "weight_decay", "a number from 0 to 1e9", decay)
        batch = self.reference_batch
        require(batch is None or batch > 0, "reference_batch", "at least 1", batch)

    def in_run(self, workers: int, batch_size: int, samples: int | None) -> Self:
        """The same with lr for this many samples per iteration, and no epochs in its schedule.

        samples: for training; None: the task has none. Raises ConfigError if it needs them.
        """
        batch = workers * batch_size
        factor = 1.0 if self.reference_batch is None else batch / self.reference_batch
        try:
            schedule = self.schedule.in_iterations(samples, batch)
            return replace(self, lr=factor * self.lr, schedule=schedule, reference_batch=None)
        except ValueError as error:
            raise ConfigError(f"optimizer: with {batch} samples per iteration {error}") from error

    def rate(self, progress: float) -> float:
        """The learning rate after so many iterations."""
        return self.lr * self.schedule.at(progress)

    def refusal(self, settings: StepSettings | None) -> str:
        return "" if settings is None else "the optimizer of this run takes no settings"

    @abstractmethod
    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        """As `Optimizer.on`."""


def in_one(gradient: Gradient) -> torch.Tensor:
    """The same in one piece, for who cannot do with several."""
    return gradient.whole() if isinstance(gradient, Pieces) else gradient
