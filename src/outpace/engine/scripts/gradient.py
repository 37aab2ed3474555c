"""Reads the gradient that a user's script has computed from the model, in `optimizer.step()`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import torch

from outpace.blocks.block import Pieces, parameters_digest, parts
from outpace.blocks.sums import Gradient, all_finite
from outpace.engine.scripts.layout import gradient_of
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import DivergenceError

_COMPARED: Final = 16  # number of iterations in which a worker's first gradient is expected


def is_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """True if GradScaler skips this step."""
    found_inf = getattr(optimizer, "found_inf", None)  # set by GradScaler
    return found_inf is not None and float(found_inf) != 0


def scale_of(optimizer: torch.optim.Optimizer) -> float:
    """Return the factor of the gradient, as in GradScaler.unscale_."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale.double().reciprocal().float())


def gradient_in_pieces(script: ScriptModel) -> Pieces:
    """Return the gradient in pieces, one for each parameter, without a copy where possible."""
    tensors = [gradient_of(p).reshape(-1) for p in script.parameters]
    if script.device is None:
        tensors = [tensor.cpu() for tensor in tensors]
    scale = scale_of(script.optimizer)
    return Pieces(tensors if scale == 1 else list(torch._foreach_mul(tensors, scale)))


def not_finite(what: str, worker: str, iteration: int) -> DivergenceError:
    """Return the error that ends a run for a gradient that is not finite."""
    return DivergenceError(
        f"the {what} of {worker} is not finite in its iteration {iteration}; "
        "try a smaller learning rate"
    )


def require_finite_parameters(script: ScriptModel, worker: str, iteration: int) -> None:
    """Raise DivergenceError if the parameters are not finite: then no later gradient is finite."""
    if not all_finite(Pieces([p.detach().reshape(-1) for p in script.parameters])):
        raise DivergenceError(
            f"the parameters of {worker} stopped being finite before its iteration {iteration}; "
            "try a smaller learning rate"
        )


class FirstGradient:
    """Reports the digest of a worker's first gradient, for comparison with the other workers'.

    Args:
        tell: called with an iteration and the digest; the digest is empty in iteration 0 if the
            worker has no gradient there.
        wanted: False if there is no other worker.

    Attributes:
        is_wanted: False once the digest has been reported, or is not expected any more.
    """

    def __init__(self, tell: Callable[[int, str], None], *, wanted: bool) -> None:
        self._tell, self.is_wanted = tell, wanted
        self._pieces: list[torch.Tensor] = []  # until the gradient is complete

    def add(self, iteration: int, tensors: Iterable[torch.Tensor], *, completes: bool) -> None:
        """Copy a part of an iteration's gradient; the last part completes it."""
        if not self.is_wanted:
            return
        self._pieces += [tensor.detach().cpu().reshape(-1).clone() for tensor in tensors]
        if completes:
            self.look(iteration, Pieces(self._pieces))
            self._pieces = []

    def look(self, iteration: int, gradient: Gradient | None) -> None:
        """Use the gradient of an iteration; None: there is none.

        A missing gradient or a gradient of zeros says nothing about the data, so the next one is
        used.
        """
        if not self.is_wanted:
            return
        digest = ""
        if gradient is not None and all_finite(gradient):
            tensors = [part.cpu() for part in parts(gradient)]
            if any(tensor.count_nonzero() for tensor in tensors):
                digest = parameters_digest([Pieces(tensors)])
        if digest or iteration == 0:
            self._tell(iteration, digest)
        self.is_wanted = not digest and iteration < _COMPARED
