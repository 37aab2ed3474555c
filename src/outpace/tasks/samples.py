"""Chooses the samples of a batch, reads them from tensors or a map-style Dataset."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import torch

from outpace.errors import ConfigError
from outpace.support.randomness import generator
from outpace.tasks.task import Accuracy, Data, Task, fraction_correct

_CACHED_INDICES: Final = 4_000_000
_CACHED_EPOCHS: Final = 64  # by which workers may be apart; small epochs are shuffled quickly
_EVALUATION_BATCH: Final = 100


class Sampler:
    """Batches without replacement from shuffled epochs that all workers share.

    The shuffled epochs follow each other and are cut into batches. With N workers, worker n gets
    batch i·N + n in iteration i. A batch depends only on worker and iteration, so workers that
    skip, overtake or recompute iterations do not change the data of any worker.

    Raises:
        ConfigError: if a batch is larger than the data.
    """

    def __init__(self, samples: int, workers: int, batch_size: int, seed: int) -> None:
        if batch_size > samples:
            raise ConfigError(
                f"batch_size: a batch of {batch_size} is more than the {samples} training samples"
            )
        self._samples, self._workers, self._batch_size = samples, workers, batch_size

        @lru_cache(maxsize=max(4, min(_CACHED_EPOCHS, _CACHED_INDICES // samples)))
        def shuffled(epoch: int) -> torch.Tensor:
            return torch.from_numpy(generator(seed, "epoch", epoch).permutation(samples))

        self._shuffled = shuffled

    def indices(self, worker: int, iteration: int) -> torch.Tensor:
        """Return the indices of the samples, int64 of shape (batch_size,)."""
        first = (iteration * self._workers + worker) * self._batch_size
        epoch, place = divmod(first, self._samples)
        here = self._shuffled(epoch)[place : place + self._batch_size]
        missing = place + self._batch_size - self._samples
        if missing <= 0:
            return here
        return torch.cat([here, self._shuffled(epoch + 1)[:missing]])


def batches_of(data: Data, samples: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield batches (size, inputs, targets) with at most `samples` samples in total.

    The samples are evenly spaced, because neighbouring samples may be similar.
    """
    length = length_of(data)
    samples = min(samples, length)
    indices = torch.arange(samples) * length // samples
    for batch in torch.split(indices, _EVALUATION_BATCH):
        yield len(batch), *samples_at(data, batch)


def length_of(data: Data) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)  # type: ignore[arg-type]


def samples_at(data: Data, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(data, tuple):
        return data[0][indices], data[1][indices]
    inputs, targets = torch.utils.data.default_collate([data[i] for i in indices.tolist()])
    return inputs, targets


def accuracy_of(task: Task) -> Accuracy | None:
    """Return the task's accuracy function; None if it has none. The default counts classes."""
    if task.test is not None and task.accuracy is fraction_correct:
        _, targets = samples_at(task.test, torch.zeros(1, dtype=torch.int64))
        return None if targets.is_floating_point() else task.accuracy
    return None if task.test is None else task.accuracy


def require_samples(data: Data, name: str) -> None:
    """Raise ConfigError unless the data can be used to train or test."""
    pair = isinstance(data, tuple) and len(data) == 2
    if not isinstance(data, torch.utils.data.Dataset) and not (
        pair and all(isinstance(part, torch.Tensor) for part in data)
    ):
        raise ConfigError(
            f"the task's {name} data must be a tuple (inputs, targets) of two tensors or a "
            f"map-style torch Dataset, not a {type(data).__name__}"
        )
    if isinstance(data, torch.utils.data.IterableDataset):
        raise ConfigError(f"the task's {name} data must be a map-style Dataset, with a length")
    if isinstance(data, tuple) and len(data[0]) != len(data[1]):
        raise ConfigError(
            f"the task's {name} data has {len(data[0])} inputs but {len(data[1])} targets"
        )
    if length_of(data) == 0:
        raise ConfigError(f"the task's {name} data is empty")
