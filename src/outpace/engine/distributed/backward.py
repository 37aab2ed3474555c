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
    joined: Time  # this worker handed its first bucket over
    computed: Time = 0  # the last one, or the end of the backward pass
    began: Time = 0  # all workers had handed their last bucket over
    ended: Time = 0
    nbytes: int = 0
    weight: int = 1

    def arrived(self, computed: Time, joined: Time, arrived: Time, least: Time) -> None:
        """Note that all buckets have arrived.

        Args:
            computed: when this worker had handed the last bucket over.
            joined: when the latest worker had, by its own clock. The clocks of two machines differ:
                a time before this worker's first bucket, or after `arrived`, is moved to that time.
            arrived: of the last bucket.
            least: shortest duration of the all-reduces from `joined`.
        """
        self.computed = computed
        self.began = min(max(joined, self.joined), arrived)
        self.ended = max(arrived, self.began + least)


@not_compiled
class BackwardPass:
    """Numbers the buckets of a backward pass, and waits for them at its end.

    DistributedDataParallel all-reduces a bucket as soon as its gradients are there, and waits for
    all buckets when the backward pass ends, in C++. `finish` waits just before that.
    """

    def __init__(self) -> None:
        self._elements = dict[int, int]()  # of the models with a forward pass, by their id
        self._last_elements = 0  # of the models of the last backward pass
        self._waits_at_last = False
        self._begun: list[CollectiveWork] = []
        self._index = self._handed_over = self._total = 0
        self.passes = 0  # that have all-reduced gradients

    @property
    def is_expected(self) -> bool:
        """True if a model of DistributedDataParallel has had a forward pass with gradients."""
        return bool(self._elements) or self._last_elements > 0

    def forward(self, model: int, elements: int, *, waits_at_last: bool) -> None:
        """Note that a forward pass begins whose backward pass all-reduces gradients.

        Args:
            model: id of the model of DistributedDataParallel.
            elements: number of its gradients.
            waits_at_last: the backward pass hands its buckets over after its end, as it does first
                with a static graph.
        """
        self._elements[model] = elements
        self._waits_at_last = waits_at_last

    def bucket(self, elements: int) -> Bucket:
        """Return the next bucket: its index, and how many gradients come with it and before it."""
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
        # There is no forward pass where `join` stands in for a process without inputs. There is
        # no backward pass then, which could wait at its end.
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
