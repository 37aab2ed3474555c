"""A checkpoint that is being taken, and checks of the reports of processes about its parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from outpace.errors import ProtocolError
from outpace.real.net.checkpoint_messages import MOST_CLOCK, CheckpointPart
from outpace.record.checkpoints import Part, ShardRecord

# the mean of models, or why it cannot be written
Mean: TypeAlias = tuple[ShardRecord, Part] | Exception


@dataclass(eq=False)
class OpenCheckpoint:
    """A checkpoint that is being taken.

    Attributes:
        at_start: True if the checkpoint was begun before the time of the run began.
        later: parts that are requested after the other parts have arrived.
        common: the worker that saves the model that all workers have; empty: there is no such
            worker.
        parts: the report of each process whose files are on the disk.
        mean: the mean of models that differ, after it was written; otherwise None.
    """

    number: int
    folder: Path
    at_start: bool
    later: Collection[str]
    common: str
    parts: dict[str, CheckpointPart] = field(default_factory=dict)
    mean: tuple[ShardRecord, Part] | None = None


def workers_in(present: OpenCheckpoint, numbers: Mapping[str, int]) -> dict[int, CheckpointPart]:
    """Return the parts of workers, by worker. numbers: numbers of all workers, by name."""
    found = {numbers[name]: part for name, part in present.parts.items() if name in numbers}
    return dict(sorted(found.items()))


def require_possible(saved: CheckpointPart) -> None:
    """Raise ProtocolError if a process's report about its part cannot be in the index of a run."""
    for record in (saved.shard, saved.own):
        if record is not None:
            marks = (1 + n for n in record.watermarks)
            numbers = [record.clock, record.version, record.pushes, *marks]
            if not all(0 <= number <= 1 + MOST_CLOCK for number in numbers):
                raise ProtocolError("it saved numbers that cannot be")
