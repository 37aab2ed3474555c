"""The common part of the fits of all run-time models: recordings, windows, steps.

A model is trained on windows of recorded iterations. It must not take a cut-off for a slow worker,
so iterations are cut off at random: a filter sees the result of `cut_off`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from outpace.errors import ConfigError
from outpace.predict.recorded import RunTimes

# share of the windows that are not cut off; a tenth of it is the share of the iterations
_WHOLE: Final = 0.25
_BETAS: Final = (0.9, 0.98)  # decay rates of the moments of the gradient
_EPS: Final = 1e-8  # added to the size of a parameter's gradient
_LONGEST: Final = 1.0  # norm to which gradients are clipped
_GRID: Final = 2.0**-26  # grid of gradients, whose norm is at most 1
_SLOWEST: Final = 0.03  # share of the learning rate at the end


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
            need = "a positive, finite number of seconds" + ", or NaN where unknown" * absent
            raise ConfigError(
                f"{run}: {problem}; every worker needs {need} in every iteration: leave out "
                "those iterations or workers" + ", or use model pooled" * (not absent)
            )


def window_rows(
    lengths: Iterable[int], length: int, count: int, generator: torch.Generator
) -> Tensor:
    """Draw windows of consecutive recordings; all places are equally likely.

    Args:
        lengths: number of iterations of each recording.
        length: number of iterations of a window.
        count: number of windows.
        generator: source of the draws.

    Returns:
        The rows of the windows, shape (length, count).
    """
    ends = zip(lengths, accumulate(lengths), strict=True)
    firsts = torch.cat([torch.arange(end - each, end - length + 1) for each, end in ends])
    chosen = firsts[torch.randint(len(firsts), (count,), generator=generator)]
    return chosen + torch.arange(length)[:, None]


def cut_off(times: Tensor, censored: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Cut the iterations of windows off at random.

    A quarter of the windows is not changed. In the others, the workers outside of a share are cut
    off, or all workers that are later than a multiple of the iteration's median, or the workers for
    which waiting does not pay. Share and multiple are constant within a window except for a little
    noise, as in real use.

    Args:
        times: log run times, shape (L, B, N), NaN where unknown.
        censored: True if a time is already the time of a cut-off; the same shape.
        generator: source of the draws.

    Returns:
        Both arrays, with the time of the cut-off in place of later times.
    """
    length, windows, workers = times.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    def noise() -> Tensor:
        return 0.1 * torch.randn(length, windows, generator=generator, dtype=torch.float64)

    ordered = times.nan_to_num(torch.inf).sort(-1).values
    there = (~times.isnan()).sum(-1)
    share = 0.3 + 0.7 * uniform(windows) + noise()
    late = -0.1 + 0.9 * uniform(windows) + noise()
    middle = ordered.gather(-1, ((there - 1).clamp(min=0) // 2)[..., None])
    best = (torch.arange(1, workers + 1).log() - ordered).argmax(-1)
    ranks = torch.stack(
        (
            (share * there).ceil().long() - 1,
            (ordered <= middle + late[..., None]).sum(-1) - 1,
            best + torch.randint(-2, 3, best.shape, generator=generator),
        )
    )
    kind = torch.randint(3, (windows,), generator=generator)
    rank = ranks.gather(0, kind.expand(1, length, windows))[0].clamp(min=0)
    whole = (uniform(windows) < _WHOLE) | (uniform(length, windows) < 0.1 * _WHOLE)
    rank = torch.where(whole, there - 1, torch.minimum(rank, there - 1)).clamp(min=0)
    end = ordered.gather(-1, rank[..., None])
    return torch.where(times > end, end, times), censored | (times > end)


def minimise(
    parameters: Iterable[nn.Parameter],
    losses: Iterable[tuple[float, Tensor]],
    rate: float,
    progress: Callable[[float], None],
) -> None:
    """Train by Adam (Kingma and Ba, 2015) on one vector of all parameters, with clipped gradients.

    torch's Adam is not used, because it imports torch's compiler, which takes seconds. Also, sums
    round differently on different processors, and a fit can multiply such a difference by a
    billion. So gradients are rounded to a grid that is far coarser than the rounding of float64 and
    no coarser than the rounding of float32, and steps are made in NumPy, whose operations on single
    numbers round in the same way everywhere: fits on two processors then take the same steps.

    Args:
        parameters: float64; become views of one vector, which the steps change.
        losses: yields the completed share of the training after each step, and the step's loss,
            which is computed when it is asked for.
        rate: the largest learning rate. It rises at the beginning and falls along a cosine.
        progress: called with the completed share.
    """
    trained = list(parameters)
    vector = nn.utils.parameters_to_vector(trained).detach()
    nn.utils.vector_to_parameters(vector, trained)
    values = vector.numpy()  # the same memory
    mean, square = np.zeros_like(values), np.zeros_like(values)
    first, second = _BETAS
    for step, (done, loss) in enumerate(losses, 1):
        found = torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, trained)])
        found *= (_LONGEST / (found.norm() + 1e-6)).clamp(max=1.0)
        gradient = np.rint(found.numpy() / _GRID) * _GRID
        mean += (1.0 - first) * (gradient - mean)
        square += (1.0 - second) * (gradient * gradient - square)
        size = np.sqrt(square / (1.0 - second**step)) + _EPS
        cosine = 0.5 * (1.0 + math.cos(math.pi * done))
        now = rate * min(1.0, 10.0 * done + 0.2) * (_SLOWEST + (1.0 - _SLOWEST) * cosine)
        values -= now / (1.0 - first**step) * (mean / size)
        progress(done)
