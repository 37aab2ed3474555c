"""The gradient buckets of a backward pass of DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from outpace.engine.distributed.call import Bucket, Collectives, CollectiveWork, not_compiled
from outpace.support.units import Time


@dataclass(slots=True)
class BackwardTimes:
    """The times of a backward pass whose gradients are all-reduced. Implements `Average`."""

    number: int
    members: Sequence[int]
    joined: Time  # time when this worker handed over its first bucket
    # time when it handed over the last bucket, or of the end of the backward pass
    computed: Time = 0
    began: Time = 0  # time when all workers had handed over their last bucket
    ended: Time = 0
    nbytes: int = 0
    weight: int = 1

    def arrived(self, computed: Time, joined: Time, arrived: Time, least: Time) -> None:
        """Note that all buckets have arrived.

        Args:
            computed: time when this worker had handed over the last bucket.
            joined: time when the last worker had done so, by its own clock. The clocks of two
                machines differ: a time before this worker's first bucket, or after `arrived`, is
                moved to that time.
            arrived: time when the last bucket had arrived.
            least: shortest duration of the all-reduces from `joined`.
        """
        self.computed = computed
        self.began = min(max(joined, self.joined), arrived)
        self.ended = max(arrived, self.began + least)


@not_compiled
class BackwardPass:
    """Numbers the buckets of a backward pass, and waits for them at its end.

    DistributedDataParallel all-reduces a bucket as soon as its gradients are complete. When the
    backward pass ends, its C++ code waits for all buckets; `finish` waits directly before that.
    """

    def __init__(self) -> None:
        self._elements = dict[int, int]()  # elements of the models with a forward pass, by their id
        self._last_elements = 0  # elements of the models of the last backward pass
        self._waits_at_last = False
        self._begun: list[CollectiveWork] = []
        self._index = self._handed_over = self._total = 0
        self.passes = 0  # number of backward passes that have all-reduced gradients

    @property
    def is_expected(self) -> bool:
        """True if a DistributedDataParallel model has had a forward pass with gradients."""
        return bool(self._elements) or self._last_elements > 0

    def forward(self, model: int, elements: int, *, waits_at_last: bool) -> None:
        """Note that a forward pass begins whose backward pass all-reduces gradients.

        Args:
            model: id of the model of DistributedDataParallel.
            elements: number of elements in the model's gradients.
            waits_at_last: True: the backward pass hands over its buckets after its end, as the
                first one does with a static graph.
        """
        self._elements[model] = elements
        self._waits_at_last = waits_at_last

    def bucket(self, elements: int) -> Bucket:
        """Return the next bucket: its index, and the number of gradients up to its end."""
        if not self._handed_over or self._handed_over >= self._total:
            self._index = self._handed_over = 0
            self._total = sum(self._elements.values()) or self._last_elements
        self._handed_over += elements
        index, self._index = self._index, self._index + 1
        return Bucket(index, elements, self._handed_over, max(self._total, self._handed_over))

    def add(self, work: CollectiveWork, bucket: Bucket, collectives: Collectives) -> None:
        """Add a bucket whose all-reduce has begun; `finish` waits for it."""
        is_first = not self._begun
        self._begun.append(work)
        # There was no forward pass if `join` replaces a process without inputs. Then there is no
        # backward pass that could wait at its end.
        if self._waits_at_last or not self._elements:
            if bucket.is_last:
                self.finish(collectives)
        elif is_first:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(partial(self.finish, collectives))

    def finish(self, collectives: Collectives) -> None:
        """Wait for all buckets, at the end of the backward pass."""
        begun, self._begun = self._begun, []
        if self._elements:
            self._last_elements = sum(self._elements.values())
        self._elements.clear()
        self._handed_over = 0
        if begun:
            self.passes += 1
            collectives.finish(begun)
