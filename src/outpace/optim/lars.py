"""LARS, an optimizer with a learning rate for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from outpace.blocks.block import StepSettings
from outpace.blocks.sums import Gradient
from outpace.optim.step import OptimizerState, Step, Updater, mean_of
from outpace.support.checks import Decay, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Lars(Updater):
    """You, Gitman and Ginsburg, Large Batch Training of Convolutional Networks, 2017, alg. 1.

    For each layer, a parameter tensor w with gradient g, with c = trust_coefficient and β =
    weight_decay: v ← momentum·v + lr·λ·(g + β·w) and w ← w − v, where λ = c·‖w‖ / (‖g‖ + β·‖w‖). If
    w is zero, λ is 1; otherwise w would stay zero.

    Each norm is taken over the part of a layer that one server owns. With `slicing: layers` a
    server owns whole layers; with `even`, each part of a divided layer counts as a layer. Raises
    ValueError unless 0 <= momentum < 1 and trust_coefficient > 0.

    Attributes:
        momentum: from 0 to below 1.
        trust_coefficient: the factor c of λ.
    """

    kind: Literal["lars"] = "lars"
    momentum: Decay = 0.9
    trust_coefficient: Positive = 0.001

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        parts = layers or [slice(0, parameters.numel())]
        return _Steps(self, parameters, parts)

    def trust(self, w: torch.Tensor, g: torch.Tensor) -> float:
        """Return λ for a layer."""
        size = torch.linalg.vector_norm(w).item()
        force = torch.linalg.vector_norm(g).item() + self.weight_decay * size
        return self.trust_coefficient * size / force if size > 0 and force > 0 else 1.0


class _Steps:
    """A `Step` of LARS. Each part of the parameters is a layer."""

    def __init__(self, lars: Lars, parameters: torch.Tensor, parts: Sequence[slice]) -> None:
        self._lars, self._velocity = lars, torch.zeros_like(parameters)
        self._tensors = [(part, parameters[part], self._velocity[part]) for part in parts]

    def __call__(
        self,
        gradient: Gradient,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float,
    ) -> None:
        gradient, lars = mean_of(gradient, divisor), self._lars
        rate = factor * lars.rate(progress)
        for part, w, v in self._tensors:
            g = gradient[part]
            trust = lars.trust(w, g)
            g.add_(w, alpha=lars.weight_decay)
            v.mul_(lars.momentum).add_(g, alpha=rate * trust)
            w.sub_(v)

    def state(self) -> OptimizerState:
        return {0: {"velocity": self._velocity.clone()}}

    def load(self, state: OptimizerState) -> None:
        self._velocity.copy_(state[0]["velocity"])
