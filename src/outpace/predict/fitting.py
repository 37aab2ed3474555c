"""Steps that the fits of all run-time models have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from outpace.errors import ConfigError
from outpace.predict.recorded.table import RunTimes

Floats: TypeAlias = NDArray[np.float64]
_EPS: Final = 1e-8  # added to the size of a parameter's gradient
_GRID: Final = 2.0**-26  # of gradients, whose norm is about 1 at most


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

    Sums round differently on another processor, and a fit can multiply such a difference by a
    billion. So gradients are rounded to a grid that is far coarser than the rounding of float64 and
    no coarser than that of float32, and steps are made in NumPy, whose operations on single numbers
    round in the same way everywhere: fits on two processors then take the same steps.

    Args:
        parameters: float64; become views of one vector, which the steps change.
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
        vector = nn.utils.parameters_to_vector(self._parameters).detach()
        nn.utils.vector_to_parameters(vector, self._parameters)
        self._vector: Floats = vector.numpy()  # the same memory
        self._mean, self._square = np.zeros_like(self._vector), np.zeros_like(self._vector)
        self._steps = 0

    def step(self, loss: Tensor, rate: float) -> None:
        """Make a step with this learning rate."""
        gradients = torch.autograd.grad(loss, self._parameters)
        found = torch.cat([each.reshape(-1) for each in gradients])
        found *= (self._longest / (found.norm() + 1e-6)).clamp(max=1.0)
        gradient: Floats = np.rint(found.numpy() / _GRID) * _GRID
        self._steps += 1
        first, second = self._betas
        self._mean += (1.0 - first) * (gradient - self._mean)
        self._square += (1.0 - second) * (gradient * gradient - self._square)
        size = np.sqrt(self._square / (1.0 - second**self._steps)) + _EPS
        self._vector -= rate / (1.0 - first**self._steps) * (self._mean / size)
