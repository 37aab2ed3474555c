"""Wire messages about checkpoints of the servers' shards and of the states of scripts."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from outpace.real.net.messages import Text
from outpace.record.checkpoints.shards import ShardRecord
from outpace.record.checkpoints.tensors import Part
from outpace.record.totals import Totals
from outpace.sync.messages import Count, WireBlock, WireMessage

# Clocks and versions that processes report. Numbers that are requested a little later are within
# Count.
MOST_CLOCK: Final = 1 << 53
Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLOCK)]
MOST_KEPT: Final = 1 << 33  # largest number of bytes of a script's state besides its parameters
# largest number of these bytes that is also sent between checkpoints
MOST_REPORTED: Final = 1 << 25
_LONGEST: Final = 1000  # largest number of characters of an error


class TakeCheckpoint(WireMessage, tag="take checkpoint"):
    """The coordinator's order to save a part of a checkpoint.

    - A server saves its shard when the shard's clock is `clock`; None: at once.
    - A worker without servers saves its models after `clock` all-reduces. 0: only at the beginning
      of the run; None: at once.
    - A worker with servers saves its script's state when the script begins iteration `clock`, or a
      later iteration if `clock` has passed; None: when the script begins its next iteration.

    Attributes:
        number: number of the checkpoint.
        folder: folder for the files.
        common: True: also save the common model.
    """

    number: Count
    clock: Count | None
    folder: Text
    common: bool = False


class VersionReached(WireMessage, tag="version reached"):
    """The answer to TakeSnapshot with request 0. clock: clock of the shard."""

    version: Clock
    clock: Clock


class CheckpointPart(WireMessage, tag="checkpoint saved"):
    """Tells the coordinator that the part of a saved process is on the disk.

    number: number of the checkpoint. now: time of the run at which the state was taken. totals:
    sums of the process at that time. iteration: the iteration that a worker begins next, or that
    its script has begun. clock: clock of a server's shard; for a worker, its number of all-reduce
    results. updates: number of versions of the model that a worker evaluates. parts: the files.
    shard: the shard of a server; without servers the common model, if it was requested. own: what a
    worker has in addition to that model, if anything. is_complete: False if the script of a worker
    gives `outpace.attach` no objects to keep and reads no data with `outpace.sampler`, so that it
    begins from its start when the run is resumed. kept_at: the time of the run at which a worker's
    script was saved, if it has one.
    """

    number: Count
    now: Count
    totals: Totals
    iteration: Clock = 0
    clock: Clock = 0
    updates: Clock = 0
    parts: Annotated[list[Part], msgspec.Meta(max_length=3)] = msgspec.field(default_factory=list)
    shard: ShardRecord | None = None
    own: ShardRecord | None = None
    is_complete: bool = True
    kept_at: Count | None = None


class NotSaved(WireMessage, tag="not saved"):
    """The answer of a process that has not saved its state.

    The coordinator then sends this message, with only the number, to the others, which give up the
    checkpoint.

    clock: its present clock, if it was past the requested one; for a worker, the iteration that it
    has begun. why: the problem, if it could not save its state.
    """

    number: Count
    clock: Clock | None = None
    why: Text = ""

    @classmethod
    def because(cls, number: int, error: Exception) -> NotSaved:
        """Return the answer after this error, whose text may be as long as a user's data."""
        return cls(number, why=str(error)[:_LONGEST] or type(error).__name__)


class ScriptState(WireMessage, tag="script state"):
    """The state of a worker's script, as the bytes of a safetensors file.

    A worker sends it for a process that may replace it; the coordinator sends it to a worker that
    continues with this state.

    done: from a worker, the iteration that it begins; to a worker, the number of iterations that
    the servers have of the previous process: it computes the iterations between the state and this
    number again, without a push. logs: to a worker, True if the values that the script logs in
    these iterations are not known yet.
    """

    block: WireBlock
    done: Count = 0
    logs: bool = False
