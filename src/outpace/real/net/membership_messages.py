"""Wire messages about processes that take the place of others (see `sync.membership`)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from outpace.sync.messages import Count, Index, WireMessage

Watermark: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]


class ReplaceWorker(WireMessage, tag="replace"):
    """The coordinator to a server: hear only the process of this generation as `worker`.

    stays: False if there will be none, because the worker has left the run.
    """

    worker: Index
    generation: Count
    stays: bool


class WorkerReplaced(WireMessage, tag="replaced"):
    """The answer of a server to ReplaceWorker, once nothing of the old process is to be processed.

    watermark: highest iteration that the worker has pushed to this shard; -1: none. clock: V, the
    iterations that the shard has finished. Of a worker that leaves, what they were before it left.
    """

    worker: Index
    generation: Count
    watermark: Watermark
    clock: Count
