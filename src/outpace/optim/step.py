"""The interface of optimizers, which take steps along aggregated gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeAlias

import torch

from outpace.blocks.block import Pieces, StepSettings
from outpace.blocks.sums import Gradient
from outpace.errors import ConfigError
from outpace.optim.schedules import ConstantRate, Schedule
from outpace.support.checks import Count, NotNegative, Positive, check_ranges

# What an optimizer remembers between steps, such as momentum, by number of the parameter and then
# by name. Tensors have the shape of the parameter's piece in the block, or no dimension.
OptimizerState: TypeAlias = Mapping[int, Mapping[str, Any]]


class Step(Protocol):
    """Takes an optimizer's steps on the parameters of one block."""

    def __call__(
        self,
        gradient: Gradient,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float,
    ) -> None:
        """Change the parameters in place by a step along gradient / divisor.

        Args:
            gradient: may be overwritten.
            settings: settings of a user's optimizer.
            progress: iterations so far, with fractions if each gradient is a step.
            factor: factor of the learning rate.
        """

    def state(self) -> OptimizerState:
        """Return a copy of the state that the optimizer keeps between steps."""

    def load(self, state: OptimizerState) -> None:
        """Replace the optimizer's state by a copy of this state."""


class Optimizer(Protocol):
    """Makes the object that takes the steps on a block."""

    def refusal(self, settings: StepSettings | None) -> str:
        """Return why these settings of a push are refused; empty if they are accepted."""

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        """Return the object that takes steps on these parameters (1-D, changed in place).

        layers: the slice of each parameter tensor; empty: the parameters are one tensor.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater(ABC):
    """The base class of optimizers in a configuration.

    The learning rate is `lr` times the schedule's factor.

    Attributes:
        lr: learning rate.
        weight_decay: multiple of the parameters that is added to the gradient.
        schedule: factor of `lr` as training proceeds.
        reference_batch: samples per iteration that `lr` is meant for; the rate grows in proportion
            to the batch (the linear scaling rule of Goyal et al., Accurate, Large Minibatch SGD,
            2017, section 2.1).

    Raises:
        ValueError: unless lr and reference_batch > 0 and weight_decay >= 0.
    """

    kind: str = ""
    lr: Positive = 0.1
    weight_decay: NotNegative = 0.0
    schedule: Schedule = field(default_factory=ConstantRate)
    reference_batch: Count | None = None

    def __post_init__(self) -> None:
        check_ranges(self)

    def in_run(self, workers: int, batch_size: int, samples: int | None) -> Self:
        """Return this optimizer with lr for the batch of this run and its schedule in iterations.

        samples: number of training samples; None: the task has no data. Raises ConfigError if
        the schedule is in epochs and the task has no data.
        """
        batch = workers * batch_size
        factor = 1.0 if self.reference_batch is None else batch / self.reference_batch
        try:
            schedule = self.schedule.in_iterations(samples, batch)
            return replace(self, lr=factor * self.lr, schedule=schedule, reference_batch=None)
        except ValueError as error:
            raise ConfigError(f"optimizer: with {batch} samples per iteration {error}") from error

    def rate(self, progress: float) -> float:
        """Return the learning rate after `progress` iterations."""
        return self.lr * self.schedule.at(progress)

    def refusal(self, settings: StepSettings | None) -> str:
        return "" if settings is None else "the optimizer of this run takes no settings"

    @abstractmethod
    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        """See `Optimizer.on`."""


def mean_of(gradient: Gradient, divisor: float) -> torch.Tensor:
    """Return gradient / divisor as one tensor; may overwrite the gradient."""
    found = gradient.whole() if isinstance(gradient, Pieces) else gradient
    return found if divisor == 1 else found.div_(divisor)
