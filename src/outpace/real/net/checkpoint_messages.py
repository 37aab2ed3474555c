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
MOST_COPIES: Final = 16  # of the parameters in a part that is sent: model, state, pending sums


class TakeCheckpoint(WireMessage, tag="take checkpoint"):
    """The coordinator to a server: save the shard when its clock becomes `clock`; None: at once.

    Without servers it goes to the workers, whose clock is the number of their all-reduces; it is 0
    only when the run begins. To the worker of a script with servers: save what the script keeps
    when it begins the iteration `clock`, or the first one after it; None: the next one.

    number: of the checkpoint. folder: for the files; empty for a process that does not see it: its
    files are fetched (FilePiece).
    common: save the model that all workers have, too.
    """

    number: Count
    clock: Count | None
    folder: Text = ""
    common: bool = False


class VersionReached(WireMessage, tag="version reached"):
    """The answer to TakeSnapshot with request 0. clock: of the shard."""

    version: Clock
    clock: Clock


class CheckpointPart(WireMessage, tag="checkpoint saved"):
    """A process that is saved, to the coordinator: its part is on the disk, or can be fetched.

    number: of the checkpoint. now: time of the run at which the state was taken. totals: of the
    process at that time. iteration: that a worker begins next, or its script has begun. clock: of
    the shard of a server; of a worker, the results of all-reduces that it has. updates: versions of
    the model that a worker evaluates. parts: the files, which the process has on the disk, or in
    memory until the coordinator has fetched them. shard: of a server; without servers the model
    that all workers have, if it was asked for. own: what a worker has beside that model, if
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


class CheckpointFiles(WireMessage, tag="checkpoint files"):
    """The coordinator to a process that is resumed, and does not see the folder.

    The process answers with the same message, without files, when it has them: then the next
    process can fetch its own.

    number: of the checkpoint. files: those of it that the process needs, and fetches (FilePiece).
    """

    number: Count
    files: list[Part]


class FilePiece(WireMessage, tag="piece"):
    """Asks for a piece of a file that the receiver has announced; with a block it is the answer.

    The coordinator asks for files of CheckpointPart, a process for those of CheckpointFiles: in the
    order of the list and of the content, and for each piece once (`real.copying`). The block is
    PIECE_BYTES long, or to the end of the file.

    number: of the checkpoint. file: its number in the list. offset: of the first byte.
    """

    number: Count
    file: Count
    offset: Count
    block: WireBlock | None = None


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
