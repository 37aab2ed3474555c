"""Steps that the fits of all run-time models have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from outpace.errors import ConfigError
from outpace.predict.recorded.table import RunTimes

_EPS: Final = 1e-8  # added to the size of a parameter's gradient


def require_learnable(histories: Sequence[RunTimes], fewest: int, *, absent: bool) -> None:
    """Raise ConfigError for the first recording that a model cannot be fitted to.

    fewest: least number of iterations; absent: True if a worker may be absent from iterations.
    """
    if not histories:
        raise ConfigError("there are no run times to fit a model to; record a run first")
    for number, history in enumerate(histories):
        run = f"run {number}" if len(histories) > 1 else "the run"
        if history.iterations < fewest:
            raise ConfigError(
                f"{run} has {history.iterations} iterations, too few to fit a model to; the model "
                f"needs at least {fewest}: record a longer run"
            )
        if problem := history.describe_invalid(absent=absent):
            need = "it must be a positive, finite number of seconds, or NaN where it is unknown"
            if not absent:
                need = (
                    "the model needs a positive number of seconds of every worker in every "
                    "iteration: leave out those iterations or workers, or use model pooled"
                )
            raise ConfigError(f"{run}: {problem}; {need}")


class Adam:
    """Adam (Kingma and Ba, 2015) on one vector of all parameters, with clipped gradients.

    A step of torch's Adam costs some hundred calls for these networks' thirty parameters, and
    making one imports torch's compiler, which takes seconds.

    Args:
        parameters: become views of one vector, which the steps change.
        betas: rates at which the moments of the gradient are forgotten.
        longest: norm to which the gradient is clipped.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        longest: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self._parameters = list(parameters)
        self._betas, self._longest = betas, longest
        self._vector = nn.utils.parameters_to_vector(self._parameters).detach()
        nn.utils.vector_to_parameters(self._vector, self._parameters)
        self._mean = torch.zeros_like(self._vector)
        self._square = torch.zeros_like(self._vector)
        self._steps = 0

    def step(self, loss: Tensor, rate: float) -> None:
        """Make a step with this learning rate."""
        gradients = torch.autograd.grad(loss, self._parameters)
        gradient = torch.cat([each.reshape(-1) for each in gradients])
        gradient.mul_((self._longest / (gradient.norm() + 1e-6)).clamp(max=1.0))
        self._steps += 1
        first, second = self._betas
        self._mean.lerp_(gradient, 1.0 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        size = (self._square / (1.0 - second**self._steps)).sqrt_().add_(_EPS)
        self._vector.addcdiv_(self._mean, size, value=-rate / (1.0 - first**self._steps))
