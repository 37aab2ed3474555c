"""How the kinds of tasks make their workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from outpace.errors import ConfigError
from outpace.support.user_code import brief
from outpace.tasks.supervised import SupervisedWorkload
from outpace.tasks.task import Task, Workload


class CuttableWorkload(Workload, Protocol):
    """A workload that does not know its servers yet."""

    @property
    def layers(self) -> Sequence[int]:
        """How many parameters each tensor of them has, in their order."""

    @property
    def size(self) -> int:
        """The number of parameters: the sum of the layers."""

    @property
    def samples(self) -> int | None:
        """The number of training samples, where there are such."""

    @property
    def model(self) -> torch.nn.Module | None:
        """What computes a gradient module by module; None: nothing that could be stopped."""

    def cut(self, slices: Sequence[slice]) -> None:
        """From now on exchange one block for each of these slices of the flat vector."""


def supervised(
    make: Callable[[], Task], workers: int, batch_size: int, seed: int, *, ours: bool = True
) -> SupervisedWorkload:
    """The task with weights of this seed. Raises ConfigError if it cannot be trained.

    ours: as for `SupervisedWorkload`.
    """
    torch.manual_seed(seed)  # initial weights; whoever runs this restores the generator
    task = make()
    try:
        return SupervisedWorkload(task, workers, batch_size, seed, ours=ours)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"this task cannot be trained: {brief(error)}") from error
