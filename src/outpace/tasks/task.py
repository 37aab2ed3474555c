"""A training task as a user gives it (`Task`) and as a runtime uses it (`Workload`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from outpace.blocks.block import Block

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # inputs, targets; a row per sample
Data: TypeAlias = Pair | torch.utils.data.Dataset[Any]
Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Accuracy: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def fraction_correct(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the share of targets whose class has the largest output.

    Args:
        output: tensor of shape (B, C), or (B, C, ...) as for `cross_entropy`, or (B, T, C) for
            sequences.
        target: classes, of the shape of the output without C.

    Raises:
        ValueError: if it is not clear which dimension of the output has the classes.
    """
    own = "give the task its own accuracy=, or accuracy=None"
    if not isinstance(output, torch.Tensor):
        raise ValueError(f"accuracy: the output is a {type(output).__name__}, not a tensor; {own}")
    places = {1, output.ndim - 1} if output.ndim > 1 else set()
    fitting = [p for p in places if output.shape[:p] + output.shape[p + 1 :] == target.shape]
    if len(fitting) != 1:
        shapes = f"an output of shape {tuple(output.shape)}, targets of shape {tuple(target.shape)}"
        why = "the classes could be in either dimension" if fitting else "no dimension has classes"
        raise ValueError(f"accuracy: {shapes}: {why}; {own}")
    return (output.argmax(dim=fitting[0]) == target).float().mean()


@dataclass(frozen=True)
class Task:
    """A model, its loss and its data, as a user's `make_task()` returns it.

        def make_task() -> outpace.Task:
            x = torch.randn(512, 8)
            return outpace.Task(torch.nn.Linear(8, 1), torch.nn.functional.mse_loss, (x, x[:, :1]))

    Attributes:
        loss: function of (output, target) that returns the mean over the batch, a scalar.
        train: (inputs, targets), tensors with one row per sample, or a map-style torch Dataset
            of such pairs.
        test: test data in the form of `train`; if None, only the training loss is evaluated.
        accuracy: function of (output, target) that returns a number in [0, 1]. By default the
            share of correct classes (`fraction_correct`), or no accuracy if targets are
            floating-point numbers.
    """

    model: torch.nn.Module
    loss: Loss
    train: Data
    test: Data | None = None
    accuracy: Accuracy | None = fraction_correct


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The quality of parameters; a value is None if the task does not define it."""

    train_loss: float | None = None
    test_loss: float | None = None
    accuracy: float | None = None


@runtime_checkable
class HasData(Protocol):
    """A kind of task that has a data set."""

    def load(self) -> None:
        """Read the data set and keep it in this process for its workloads.

        Processes that are forked from this one later have it as well. Raises ConfigError.
        """


class Workload(Protocol):
    """A task cut into blocks for servers and batches for workers.

    The parameters are one block until `cut` is called.
    """

    @property
    def has_accuracy(self) -> bool: ...

    @property
    def layers(self) -> Sequence[int]:
        """Size of each parameter tensor, in order."""

    @property
    def size(self) -> int:
        """Number of parameters: the sum of `layers`."""

    @property
    def samples(self) -> int | None:
        """Number of training samples; None for a task without samples."""

    @property
    def model(self) -> torch.nn.Module | None:
        """The module that computes gradients; None if the computation cannot be aborted."""

    @property
    def layout(self) -> str:
        """Names and shapes of the parameters, see `blocks.naming`; empty for `timing`."""

    def cut(self, slices: Sequence[slice]) -> None:
        """Use one block for each of these slices of the flat parameter vector from now on."""

    def initial_parameters(self) -> list[Block]:
        """Return the blocks that training starts from."""

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float | None, Sequence[Block]]:
        """Return the loss and gradient of the worker's batch of this iteration.

        The result depends on the arguments alone: calls may come late, in any order, or never.
        The gradient has a block for each block of the parameters, and belongs to the caller.
        """

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        """Evaluate on at most `samples` samples of the training data and of the test data."""

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        """Return the parameters under the model's own names; empty for `timing`."""
