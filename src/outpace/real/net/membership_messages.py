"""Wire messages about processes that take the place of others (see `sync.membership`)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from outpace.real.net.messages import Name, WirePart
from outpace.sync.messages import Count, Index, WireMessage

Watermark: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]


class Fenced(WireMessage, tag="fenced"):
    """Tells a process that another one has taken its place, and that it is not heard any more.

    generation: of the other one.
    """

    generation: Count


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


class NewWorker(WirePart):
    """A worker that may connect from now on. key: its public key; empty if insecure."""

    worker: Index
    key: Name


class RunHasWorkers(WireMessage, tag="has workers"):
    """The coordinator to a server: see `sync.messages.SetWorkers`. new: those never heard of."""

    workers: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    new: list[NewWorker]


class DataDivided(WireMessage, tag="data divided"):
    """The coordinator to a worker: from this iteration on the data are for so many workers."""

    first: Count
    workers: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


class EndsTraining(WireMessage, tag="ends training"):
    """A worker to the coordinator: its script is at its end, and waits for that of the others."""


class TellKept(WireMessage, tag="tell kept"):
    """The coordinator to worker 0: send what the script keeps when it begins its next iteration.

    Workers that join begin with it. The answer is a ScriptState that `answers`, or CheckpointFailed
    without a number.
    """


class LeaveRun(WireMessage, tag="leave run"):
    """The coordinator to a worker: leave the run before this iteration."""

    first: Count
