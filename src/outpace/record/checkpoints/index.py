"""The index of a checkpoint: everything except tensors, and the names of its files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from outpace.record.checkpoints.committed import Head
from outpace.record.checkpoints.shards import ShardRecord
from outpace.record.checkpoints.tensors import Part
from outpace.record.event_log import Recovery
from outpace.record.folder import is_segment
from outpace.record.totals import Totals

_MOST: Final = 2**53
_LEAD: Final = 1_000_000  # largest number of iterations that a worker may be ahead of a shard


class Index(Head, kw_only=True):
    """The content of index.json. Unknown fields are ignored when it is read.

    An engine makes an index when the parts are on the disk; the segments are added when it is
    written.

    Attributes:
        updates: number of versions of shard 0, as `evaluate.every_updates` counts them.
        parts: the files of the shards.
        shards: the records of the shards, in order. Without servers there is one record, for the
            model that all workers have.
        own: without servers, what each worker has besides the common model: the state of its own
            model's optimizer, and its accumulated gradients. Empty if the workers have nothing.
        totals: sums of the run until now.
        bounds: bounds of the shards' slices of the flat parameters: 0, the end of the first slice,
            ...
        layers: number of elements of each parameter tensor, in order.
        layout: names and shapes of the parameters, see `blocks.naming`; empty if they have none.
        recovery: counts of the run until now.
        ended: workers whose scripts had ended.
        anew: workers whose scripts begin from their start when the run is resumed, because they
            keep no state.
        costs: costs of simulated failures until now (`simulation.faults.costs`).
        of_script: True if the optimizers' states are by tensor of the model, as with scripts.
        segments: the files of the run's records so far, below the folder of the run.
    """

    updates: int
    parts: tuple[Part, ...]
    shards: tuple[ShardRecord, ...]
    totals: Totals
    bounds: tuple[int, ...]
    layers: tuple[int, ...]
    layout: str = ""
    recovery: Recovery = msgspec.field(default_factory=Recovery)
    own: tuple[ShardRecord, ...] = ()
    ended: tuple[int, ...] = ()
    anew: tuple[int, ...] = ()
    costs: dict[str, Any] = msgspec.field(default_factory=dict)
    of_script: bool = False
    segments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if a file, slice or worker does not belong to this checkpoint."""
        records = [*self.shards, *self.own]
        names = [*(part.file for part in self.parts), *(record.file for record in records)]
        if any(Path(name).name != name for name in names):
            raise ValueError("it names a file outside of its folder")
        if odd := next((name for name in self.segments if not is_segment(name)), None):
            raise ValueError(f"segments: {odd!r} is not the name of a file with records of the run")
        if not self.shards or len(self.bounds) - 1 != len(self.shards):
            raise ValueError("it has not as many slices as servers")
        if list(self.bounds) != sorted(self.bounds) or self.bounds[0] != 0:
            raise ValueError("its slices are not in order")
        if any(len(shard.watermarks) != self.workers for shard in self.shards):
            raise ValueError("its servers have not as many workers")
        for record in records:
            if not 0 <= record.clock <= _MOST:
                raise ValueError(f"clock of {record.file}: {record.clock:,} cannot be")
            # A shard finishes iterations one by one, up to the last iteration that it has.
            last = max(record.watermarks, default=record.clock)
            if abs(last - record.clock) > _LEAD:
                raise ValueError(f"watermarks of {record.file}: {last:,} is not near its clock")

    @property
    def workers(self) -> int:
        """The number of workers."""
        return len(self.shards[0].watermarks)

    @property
    def slices(self) -> list[slice]:
        """The shards' slices of the flat parameters."""
        return [slice(low, high) for low, high in pairwise(self.bounds)]
