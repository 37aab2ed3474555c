"""A task with a closed form: a quadratic with given eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field

from outpace.blocks.block import Block, whole
from outpace.blocks.naming import layout_of
from outpace.support.checks import NotNegative, check_ranges
from outpace.support.randomness import generator
from outpace.tasks.task import Evaluation, Workload


@dataclass(frozen=True, slots=True)
class Quadratic:
    """Minimise ½ Σ λ_j·w_j² from w = 1, with random noise added to the gradient.

    Attributes:
        eigenvalues: the eigenvalues λ_j.
        noise: standard deviation of the entries of the gradient.
    """

    eigenvalues: Annotated[tuple[NotNegative, ...], Field(min_length=1)]
    noise: NotNegative = 0.0
    kind: Literal["quadratic"] = "quadratic"

    def __post_init__(self) -> None:
        check_ranges(self)

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        return QuadraticWorkload(self.eigenvalues, self.noise, seed)


class QuadraticWorkload:
    """Minimise ½ Σ λ_j·w_j² from w = 1, in float64. The gradient is λ·w + noise·ε.

    ε is standard normal and independent for each worker, iteration and entry. With one eigenvalue
    λ, plain SGD with learning rate η and gradients of staleness τ (in updates) is stable if and
    only if η·λ < 2·sin(π / (2·(2τ + 1))).
    """

    has_accuracy = False
    samples = None
    model = None

    def __init__(self, eigenvalues: Sequence[float], noise: float, seed: int) -> None:
        self._eigenvalues = torch.tensor(eigenvalues, dtype=torch.float64)
        self._noise, self._seed = noise, seed
        self.size = len(eigenvalues)
        self.layers = (self.size,)
        self._slices = [slice(0, self.size)]

    @property
    def layout(self) -> str:
        return layout_of([("w", self._eigenvalues)])

    def cut(self, slices: Sequence[slice]) -> None:
        self._slices = list(slices)

    def initial_parameters(self) -> list[Block]:
        start = torch.ones_like(self._eigenvalues)
        return [start[part].clone() for part in self._slices]

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float, Sequence[Block]]:
        point = _point(parameters)
        gradient = self._eigenvalues * point
        if self._noise:
            source = generator(self._seed, "gradient noise", worker, iteration)
            gradient += self._noise * torch.from_numpy(source.standard_normal(self.size))
        return self._loss(point), [gradient[part].clone() for part in self._slices]

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        return Evaluation(train_loss=self._loss(_point(parameters)))

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        return {"w": _point(parameters)}

    def _loss(self, point: torch.Tensor) -> float:
        return 0.5 * float(torch.dot(self._eigenvalues, point * point))


def _point(parameters: Sequence[Block]) -> torch.Tensor:
    """Return a copy of all parameters."""
    tensors = [tensor for block in parameters if isinstance(tensor := whole(block), torch.Tensor)]
    return torch.cat(tensors)
