"""The index of a checkpoint: all that is no tensor, and the files that belong to it."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from outpace.record.checkpoints.committed import (
    INDEX,
    VERSION,
    Damaged,
    index_text,
    read_plain_index,
)
from outpace.record.checkpoints.shards import ShardRecord
from outpace.record.checkpoints.tensors import Part, write_bytes
from outpace.record.folder import is_segment
from outpace.record.totals import Recovery, Totals
from outpace.support.units import Time
from outpace.support.version import __version__

_MOST: Final = 2**53
_LEAD: Final = 1_000_000  # iterations that a worker may be ahead of a shard


class Taken(msgspec.Struct, kw_only=True):
    """A checkpoint whose parts are on the disk, as its engine knows it.

    Attributes:
        now: time of the run.
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
    """

    number: int
    now: Time
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
    costs: dict[str, Any] = {}
    of_script: bool = False

    @property
    def workers(self) -> int:
        """The number of workers."""
        return len(self.shards[0].watermarks)

    @property
    def slices(self) -> list[slice]:
        """The shards' slices of the flat parameters."""
        return [slice(low, high) for low, high in pairwise(self.bounds)]


class Index(Taken, kw_only=True):
    """The content of index.json. Fields that are not known are ignored when it is read.

    Attributes:
        segments: the files of the run's records so far, below the folder of the run.
        outpace: the version that wrote it.
    """

    version: int = VERSION
    outpace: str = __version__
    segments: tuple[str, ...] = ()

    @classmethod
    def of(cls, taken: Taken, segments: tuple[str, ...] = ()) -> Index:
        """Return the index of what an engine has taken."""
        return cls(**msgspec.structs.asdict(taken), segments=segments)


def write_index(folder: Path, index: Index) -> None:
    """Write index.json and wait until it is on the disk. Raises OSError."""
    plain = msgspec.to_builtins(index, str_keys=True)
    write_bytes(folder / INDEX, index_text(plain).encode())


def read_index(folder: Path) -> Index:
    """Return the index.

    Raises:
        Damaged: if it is missing or not as it was written.
        ConfigError: if a newer version of Outpace wrote it.
    """
    plain = read_plain_index(folder)
    try:
        index = msgspec.convert(plain, Index, str_keys=True)
        if problem := _problem(index):
            raise ValueError(problem)
        return index
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"{folder / INDEX} is damaged: {error}") from error


def _problem(index: Index) -> str:
    """Return why an index cannot be right, although its checksum is; empty if it can."""
    records = [*index.shards, *index.own]
    names = [*(part.file for part in index.parts), *(record.file for record in records)]
    if any(Path(name).name != name for name in names):
        return "it names a file outside of its folder"
    if odd := next((name for name in index.segments if not is_segment(name)), None):
        return f"segments: {odd!r} is not the name of a file with records of the run"
    if not index.shards or len(index.bounds) - 1 != len(index.shards):
        return "it has not as many slices as servers"
    if list(index.bounds) != sorted(index.bounds) or index.bounds[0] != 0:
        return "its slices are not in order"
    if any(len(shard.watermarks) != index.workers for shard in index.shards):
        return "its servers have not as many workers"
    return next(filter(None, map(_odd_progress, records)), "")


def _odd_progress(record: ShardRecord) -> str:
    """Return what is wrong with how far a shard says that it is; empty if nothing is.

    A shard finishes iterations one by one, up to the last one that it has.
    """
    counts = (record.clock, record.version, record.pushes, *record.gone)
    if not all(0 <= count <= _MOST for count in counts):
        return f"clock, version, pushes or gone of {record.file}: a number is out of range"
    last = max(record.watermarks, default=-1)
    if min(record.watermarks, default=-1) < -1 or not -_LEAD <= last - record.clock <= _LEAD:
        return f"watermarks of {record.file}: {last:,} is too far from its clock, {record.clock:,}"
    if not math.isfinite(record.furthest) or not -1 <= record.mixed <= _MOST:
        return f"furthest or mixed of {record.file}: a number is out of range"
    return ""
