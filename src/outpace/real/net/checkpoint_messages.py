"""Wire messages about checkpoints: of the servers' shards, and of what scripts keep."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from outpace.real.net.messages import Text
from outpace.record.checkpoints.shards import ShardRecord
from outpace.record.checkpoints.tensors import Part
from outpace.record.totals import Totals
from outpace.sync.messages import Count, WireBlock, WireMessage

# Clocks and versions that processes report. What is asked for a little later is within Count.
MOST_CLOCK: Final = 1 << 53
Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_CLOCK)]
MOST_KEPT: Final = 1 << 33  # bytes that a script may keep beside its parameters
MOST_REPORTED: Final = 1 << 25  # bytes of it that are sent between checkpoints, too
_LONGEST: Final = 1000  # characters of an error


class TakeCheckpoint(WireMessage, tag="take checkpoint"):
    """The coordinator to a server: save the shard when its clock becomes `clock`; None: at once.

    Without servers it goes to the workers, whose clock is the number of their all-reduces; it is 0
    only when the run begins. To the worker of a script with servers: save what the script keeps
    when it begins the iteration `clock`, or the first one after it; None: the next one.

    number: of the checkpoint. folder: for the files.
    common: save the model that all workers have, too.
    """

    number: Count
    clock: Count | None
    folder: Text
    common: bool = False


class VersionReached(WireMessage, tag="version reached"):
    """The answer to TakeSnapshot with request 0. clock: of the shard."""

    version: Clock
    clock: Clock


class CheckpointPart(WireMessage, tag="checkpoint saved"):
    """A process that is saved, to the coordinator: its part is on the disk.

    number: of the checkpoint. now: time of the run at which the state was taken. totals: of the
    process at that time. iteration: that a worker begins next, or its script has begun. clock: of
    the shard of a server; of a worker, the results of all-reduces that it has. updates: versions of
    the model that a worker evaluates. parts: the files. shard: of a server; without servers the
    model that all workers have, if it was asked for. own: what a worker has beside that model, if
    anything. is_complete: False if the script of a worker gives `outpace.attach` nothing to keep
    and reads no data with `outpace.sampler`, so that it begins anew when the run is resumed.
    kept_at: the time of the run at which the script of a worker was saved, if it has one.
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

    The coordinator then tells the others, with the number alone: they give the checkpoint up.

    clock: at which it is, if it was past the one that it was asked for; of a worker, the iteration
    that it has begun. why: the problem, if it could not save its state.
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

    A worker sends it for a process that may take its place; the coordinator sends it to a worker
    that is resumed from there.

    done: from a worker, the iteration that it begins; to a worker, how many iterations the servers
    have of the process that was here before; it computes those from the state on again, without a
    push. logs: to a worker, True if what the script logs meanwhile is not known yet.
    """

    block: WireBlock
    done: Count = 0
    logs: bool = False
