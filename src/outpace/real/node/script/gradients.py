"""The gradients that a user's script computes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from outpace.blocks.block import Pieces
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.real.net.sparse_log import SparseLog
from outpace.real.node.parameters import gradient_of
from outpace.real.node.script.model import ScriptModel


class ScriptGradients:
    """Reads a script's gradients; a gradient that is not finite is refused or ends the run.

    Args:
        name: name of the worker.
        say: tells the user that a gradient is refused.
    """

    def __init__(
        self, script: ScriptModel, experiment: Experiment, name: str, say: Callable[[str], None]
    ) -> None:
        self._script, self._name = script, name
        self._refuse = experiment.non_finite == "refuse"
        self._log = SparseLog(say)

    def now(self, iteration: int) -> torch.Tensor | None:
        """Return the gradient in the model as one vector; None if it is skipped or refused."""
        if self._is_skipped:
            return None
        script = self._script
        flat = script.as_one([gradient_of(p) for p in script.parameters])
        scale = self._scale
        return (
            flat if self._may_be_used(flat if scale == 1 else flat.mul_(scale), iteration) else None
        )

    def in_place(self, iteration: int, *, look: bool = True) -> Pieces | None:
        """Return the gradient in pieces, without a copy where possible; None as in `now`.

        Args:
            look: refuse the gradient if it is not finite.
        """
        if self._is_skipped:
            return None
        tensors = [gradient_of(p).reshape(-1) for p in self._script.parameters]
        if self._script.device is None:
            tensors = [tensor.cpu() for tensor in tensors]
        if self._scale != 1:
            tensors = list(torch._foreach_mul(tensors, self._scale))
        pieces = Pieces(tensors)
        return pieces if not look or self._may_be_used(pieces, iteration) else None

    @property
    def _is_skipped(self) -> bool:
        found_inf = getattr(self._script.optimizer, "found_inf", None)  # set by GradScaler
        return found_inf is not None and float(found_inf) > 0

    @property
    def _scale(self) -> float:
        """Factor of the gradient, as in GradScaler.unscale_."""
        scale = getattr(self._script.optimizer, "grad_scale", None)
        return 1.0 if scale is None else float(scale.double().reciprocal().float())

    def _may_be_used(self, gradient: Gradient, iteration: int) -> bool:
        if all_finite(gradient):
            return True
        self.refuse(iteration)
        return False

    def refuse(self, iteration: int) -> None:
        """Report a gradient that is not finite.

        Raises:
            DivergenceError: if the run ends for it, or if the parameters are not finite either.
        """
        if not all_finite(Pieces([p.detach().reshape(-1) for p in self._script.parameters])):
            raise DivergenceError(  # no later gradient can be finite
                f"the parameters of {self._name} stopped being finite before its iteration "
                f"{iteration}; try a smaller learning rate"
            )
        what = f"the gradient of {self._name} is not finite in its iteration {iteration}"
        if not self._refuse:
            raise DivergenceError(f"{what}; try a smaller learning rate")
        self._log.note(
            f"a gradient of {self._name} is not finite: it is not pushed",
            first=f" (iteration {iteration})",
        )
