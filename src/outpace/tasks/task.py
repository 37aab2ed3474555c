"""What a training task is, to a user (`Task`) and to a runtime (`Workload`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from outpace.blocks.block import Block

Data: TypeAlias = tuple[torch.Tensor, torch.Tensor] | torch.utils.data.Dataset[Any]
Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Accuracy: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def fraction_correct(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The share of samples whose largest output is the target class."""
    return (output.argmax(dim=1) == target).float().mean()


@dataclass(frozen=True)
class Task:
    """A model, its loss and its data: what `make_task()` of a user returns.

    `train` and `test` are (inputs, targets), tensors with one row per sample, or a
    map-style torch Dataset of such pairs. `loss(output, target)` is the mean over the
    batch, a scalar. `accuracy(output, target)` is a number in [0, 1]; left out, it is the
    share of classes guessed right, and none where targets are floating-point numbers.
    Without `test` only the training loss is evaluated.
    """

    model: torch.nn.Module
    loss: Loss
    train: Data
    test: Data | None = None
    accuracy: Accuracy | None = fraction_correct


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What parameters are worth. None: the task has no such number."""

    train_loss: float | None = None
    test_loss: float | None = None
    accuracy: float | None = None


class Workload(Protocol):
    """A task cut into blocks for servers and batches for workers."""

    @property
    def has_accuracy(self) -> bool: ...

    def initial_parameters(self) -> list[Block]:
        """The blocks that training starts from."""

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float | None, Sequence[Block]]:
        """The loss and gradient of the worker's batch for that iteration.

        A function of its arguments only: it may be called late, in any order, or never.
        The gradient belongs to the caller; one block for each of the parameters'.
        """

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        """Evaluate on the training and test data, on at most so many samples of each."""

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        """The parameters under the model's own names; empty for `timing`."""
