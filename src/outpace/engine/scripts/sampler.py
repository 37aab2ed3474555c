"""The sampler of a worker's share of the data, which also sees the size of the batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler

from outpace.support.place import HERE


class WorkerSampler(DistributedSampler[Any]):
    """A DistributedSampler that notes the batch size of the DataLoader that iterates over it.

    A DataLoader does not tell its sampler the batch size. The object that asks for the indices is
    a BatchSampler, which has it; where something else asks, nothing is noted.
    """

    def __iter__(self) -> Iterator[Any]:
        caller = sys._getframe(1).f_locals.get("self")
        if isinstance(caller, BatchSampler):
            HERE.batch_sizes.add(caller.batch_size)
        return super().__iter__()
