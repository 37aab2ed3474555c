"""Wire messages with which the coordinator has the servers save their shards."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from outpace.real.net.messages import Text
from outpace.record.totals import Totals
from outpace.sync.messages import Count, WireMessage

Encoded: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=1 << 21)]


class TakeCheckpoint(WireMessage, tag="take checkpoint"):
    """The coordinator to a server: save the shard when its clock becomes `clock`; None: at once.

    Without servers it goes to the workers, whose clock is the number of their all-reduces; it is 0
    only when the run begins.

    number: of the checkpoint. folder: for the file. common: save the model that all workers have,
    too.
    """

    number: Count
    clock: Count | None
    folder: Text
    common: bool = False


class WriteMean(WireMessage, tag="write mean"):
    """The coordinator to a worker: save the mean of the workers' models, which are on the disk.

    files: of the workers, in the folder of this checkpoint.
    """

    number: Count
    folder: Text
    files: list[Text]


class GiveUpCheckpoint(WireMessage, tag="give up checkpoint"):
    """The coordinator to a server or worker: another one has missed the moment of a checkpoint."""

    number: Count


class TellVersion(WireMessage, tag="tell version"):
    """The coordinator to a server: send VersionReached as soon as the shard has this version."""

    version: Count


class VersionReached(WireMessage, tag="version reached"):
    """The answer to TellVersion. clock: of the shard."""

    version: Count
    clock: Count


class CheckpointPart(WireMessage, tag="checkpoint saved"):
    """A server to the coordinator: its shard is on the disk.

    now: time of the run at which the state was taken. totals: of the server at that time.
    saved: what is to be in the index, encoded (`SavedShard`).
    """

    number: Count
    now: Count
    totals: Totals
    saved: Encoded


class CheckpointMissed(WireMessage, tag="checkpoint missed"):
    """A server to the coordinator: its shard was past the clock that it was asked for.

    clock: at which it is.
    """

    number: Count
    clock: Count


class CheckpointFailed(WireMessage, tag="checkpoint failed"):
    """A server to the coordinator: its shard could not be written."""

    number: Count
    why: Text
