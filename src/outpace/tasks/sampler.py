"""Chooses the samples in the batch of a worker's iteration."""

from __future__ import annotations

from functools import lru_cache

import torch

from outpace.errors import ConfigError
from outpace.support.randomness import generator

_CACHED_INDICES = 4_000_000


class Sampler:
    """Batches without replacement from shuffled epochs that all workers share.

    The shuffled epochs follow each other and are cut into batches. With N workers, worker n gets
    batch i·N + n in iteration i. A batch depends on worker and iteration alone, so skipping,
    overtaking and recomputing do not change the data of any worker.

    Raises:
        ConfigError: if a batch is larger than the data.
    """

    def __init__(self, samples: int, workers: int, batch_size: int, seed: int) -> None:
        if batch_size > samples:
            raise ConfigError(
                f"batch_size: a batch of {batch_size} is more than the {samples} training samples"
            )
        self._samples, self._workers, self._batch_size = samples, workers, batch_size

        @lru_cache(maxsize=max(4, _CACHED_INDICES // samples))
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
