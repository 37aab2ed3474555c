"""The index of a checkpoint: all that is no tensor, and the files that belong to it."""

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
_LEAD: Final = 1_000_000  # iterations that a worker may be ahead of a shard


class Index(Head, kw_only=True):
    """The content of index.json. Fields that are not known are ignored when it is read.

    An engine makes one when the parts are on the disk; the segments are added when it is written.

    Attributes:
        updates: versions of shard 0, as `evaluate.every_updates` counts them.
        parts: the files of the shards.
        shards: in order. Without servers one: the model that all workers have.
        own: without servers, what each worker has beside the model: what the optimizer of its own
            model remembers, and gradients that it has accumulated. Empty if they have nothing.
        totals: of the run until now.
        bounds: of the shards' slices of the flat parameters: 0, the end of the first slice, ...
        layers: number of elements of each parameter tensor, in order.
        layout: names and shapes of the parameters, see `blocks.naming`; empty if they have none.
        recovery: of the run until now.
        ended: workers whose scripts had come to their end.
        anew: workers whose scripts begin anew when the run is resumed, because they keep nothing.
        costs: of simulated failures until now (`simulation.faults.costs`).
        of_script: the optimizers' states are by tensor of the model, as those of scripts are.
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
        """Raise ValueError if a file, slice or worker is not of this checkpoint."""
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
            # A shard finishes iterations one by one, up to the last it has.
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
