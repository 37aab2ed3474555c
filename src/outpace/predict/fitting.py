"""Steps that the fits of all run-time models have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.recorded.table import RunTimes


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


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, rate: float, longest: float) -> None:
    """Make a step with this learning rate; the gradient is clipped to the norm `longest`."""
    (group,) = optimizer.param_groups
    group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(group["params"], longest)
    optimizer.step()
