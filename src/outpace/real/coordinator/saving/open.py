"""A checkpoint that is being taken in a real run, and checks of what processes say of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outpace.config.experiment import Experiment
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.resuming import ResumePoint
from outpace.errors import ProtocolError
from outpace.kernel import Kernel
from outpace.real.background import Beside, do_now
from outpace.real.net.checkpoint_messages import MOST_CLOCK, CheckpointPart
from outpace.real.net.transport import Listener
from outpace.record.checkpoints import Part, ShardRecord, Taken
from outpace.record.totals import Totals
from outpace.support.units import Time


@dataclass(frozen=True, slots=True)
class Saving:
    """Where the checkpoints of a run go.

    complete: called with a checkpoint whose parts are on the disk, their folder, and for each
        worker whose script is saved, the time of the run at which it was; it adds what the
        processes do not know. Raises OSError.
    """

    keeper: CheckpointKeeper
    complete: Callable[[Taken, Path, Mapping[int, Time]], None]


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run whose checkpoints are taken. `experiment.checkpoint` says when they are due.

    totals_of: the sums that each process has reported. resume: where the run goes on; None: it
    begins. beside: does what takes long beside the run. copies: the processes do not see the folder
    of the run, so their files are fetched.
    """

    experiment: Experiment
    kernel: Kernel
    listener: Listener
    saving: Saving
    totals_of: Mapping[str, Totals]
    resume: ResumePoint | None = None
    beside: Beside = do_now
    copies: bool = False


@dataclass(eq=False)
class Open:
    """A checkpoint that is being taken.

    at_start: before the time of the run began. parts: what each process has said of its part, whose
    files are on the disk, by its number. mean: of models that differ, once it is written.
    is_watched: it is given up if the parts that are missing do not come.
    """

    number: int
    folder: Path
    at_start: bool
    parts: dict[int, CheckpointPart] = field(default_factory=dict)
    mean: tuple[ShardRecord, Part] | None = None
    is_watched: bool = False


def require_possible(part: CheckpointPart) -> None:
    """Raise ProtocolError if what a process says of its part cannot be in the index of a run."""
    for record in (part.shard, part.own):
        if record is not None:
            marks = (1 + n for n in record.watermarks)
            numbers = [record.clock, record.version, record.pushes, *marks]
            if not all(0 <= number <= 1 + MOST_CLOCK for number in numbers):
                raise ProtocolError("it saved numbers that cannot be")
