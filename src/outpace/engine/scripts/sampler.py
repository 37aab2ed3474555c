"""The sampler of a worker's share of the data, which records how far the script has read."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any, Final

from torch.utils.data import BatchSampler, DistributedSampler

from outpace.engine.scripts.anew import unkept
from outpace.support.place import HERE

_MOST_WRAPPERS: Final = 8  # most frames between the BatchSampler and the DataLoader's iterator


class WorkerSampler(DistributedSampler[Any]):
    """A DistributedSampler that notes the batch size of the DataLoader that iterates over it.

    A DataLoader does not tell its sampler the batch size. The object that asks for the indices is a
    BatchSampler, which has the batch size, or the DataLoader's iterator if the DataLoader makes no
    batches. If any other object asks for them, the place in the data is not known. The iterator
    counts the batches that the script has had; processes of the DataLoader may have drawn more.
    """

    passes = 0  # see `Sampling`
    is_asked = False
    _epoch = 0
    _batch_size = 0
    _left_out = 0  # number of samples to leave out at the beginning of the next pass
    _began = 0  # number of samples left out of the present pass
    _resumed: int | None = None  # the epoch to continue with, until the script has set one
    _iterator: weakref.ref[Any] | None = None  # batch size of the DataLoader

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        HERE.data.add(self)

    @property
    def epoch(self) -> int:
        """The epoch that is read next. A script begins its loop over epochs with this number."""
        self.is_asked = True
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        batch_size = _batch_size_of(sys._getframe(1).f_locals.get("self"))
        asked = self.is_asked
        indices = [*super().__iter__()]  # reads `epoch`
        self.is_asked = asked
        self._begin_pass()
        self._began, self._left_out = self._left_out, 0
        self._batch_size, self._iterator = batch_size, None
        return self._drawn(indices[self._began :], batch_size)

    def _begin_pass(self) -> None:
        """Warn if the script reads its data again and a resumed run would begin at epoch 0."""
        self.passes += 1
        if self.passes > 1 and (lacks := unkept()):
            HERE.tell(lacks)

    def place(self) -> tuple[int, int]:
        """See `Sampling`."""
        iterator = None if self._iterator is None else self._iterator()
        if iterator is None:
            return self._epoch, 0
        batches: int = iterator._num_yielded - 1
        return self._epoch, self._began + self._batch_size * max(0, batches)

    def leave_out(self, samples: int) -> None:
        """See `Sampling`."""
        self._left_out, self._resumed = samples, self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order is used next.

        Warns if the run was resumed in a later epoch that the script's loop has not asked for.
        """
        resumed, self._resumed = self._resumed, None
        super().set_epoch(epoch)
        if resumed is not None and epoch < resumed:
            HERE.tell(
                f"the script continues in epoch {resumed} of its data, but sets epoch {epoch}, so "
                "its epochs are repeated: let its loop begin with sampler.epoch, 0 at first"
            )

    def _drawn(self, indices: list[Any], batch_size: int) -> Iterator[Any]:
        HERE.data.begin()
        for place, index in enumerate(indices):
            if batch_size and place % batch_size == 0:
                self._find_iterator()
                iterator = None if self._iterator is None else self._iterator()
                if iterator is not None and not iterator._num_workers:
                    HERE.data.draws()
            yield index

    def _find_iterator(self) -> None:
        """Find the DataLoader's iterator, which makes the BatchSampler draw, even in a wrapper."""
        frame = sys._getframe(2)  # frame of the function that asked for an index
        for _ in range(_MOST_WRAPPERS if self._iterator is None else 0):
            iterator = frame.f_locals.get("self")
            if hasattr(iterator, "_num_yielded") and hasattr(iterator, "_num_workers"):
                self._iterator = weakref.ref(iterator)
                return
            if frame.f_back is None:
                return
            frame = frame.f_back


def _batch_size_of(reader: object) -> int:
    """Return the batch size of the object that reads a sampler; 0 if it is not known."""
    if hasattr(reader, "_index_sampler"):  # the iterator of a DataLoader with batch_size=None
        return 1
    size = getattr(reader, "batch_size", None) if isinstance(reader, BatchSampler) else None
    if isinstance(size, int):
        HERE.batch_sizes.add(size)
        return size
    if HERE.data.is_kept:
        HERE.tell(
            "outpace.sampler is not read by a DataLoader with a batch_size, so a checkpoint does "
            "not know how far the script is in its data: a resumed run reads the epoch from "
            "its beginning; give the DataLoader the sampler and a batch_size"
        )
    return 0
