"""Wire messages: what the processes of a run send each other.

Messages of programs are sent as they are (`sync.messages`). Those for what workers do together are
in `peer_messages`, those about checkpoints in `checkpoint_messages`, those of the first measurement
in `probes`, what processes report in `report_messages`, the others here. `wire` has what is around
a message. Every field is typed and bounded, so that decoding refuses values that cannot be right.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from outpace.sync.messages import Count, Index, WireBlock, WireMessage

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100_000)]
Layout: TypeAlias = Annotated[str, msgspec.Meta(max_length=2_000_000)]

Watermark: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]


class WirePart(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """A part of a message, or what is around it."""


class BlockPiece(WireMessage, tag="more"):
    """The next piece of the block of an earlier message."""

    offset: Count  # bytes


# -- workers and servers: parameters ---------------------------------------------------


class Initialize(WireMessage, tag="initialize"):
    """Worker 0 to a server: start from this block, with this optimizer.

    optimizer: empty, or the name of a user's optimizer. groups: for each parameter group of
    such an optimizer, the (parameter number, low, high) of its pieces of the block. has_state:
    an OptimizerState follows, with which the optimizer begins.
    """

    optimizer: Name
    settings: list[dict[str, Any]]
    groups: list[list[tuple[Index, Count, Count]]]
    block: WireBlock
    has_state: bool = False


class Fetch(WireMessage, tag="fetch"):
    """A worker to a server: send a Snapshot, or the OptimizerState.

    what: `initial` parameters, the `final` ones once all workers have left, or the `state`.
    """

    what: Literal["initial", "final", "state"]


class StateEntry(WirePart):
    """An entry of an optimizer's state: a tensor, or a value if `dtype` is empty.

    elements: 0 for a tensor without a dimension.
    """

    parameter: Index
    name: Name
    dtype: Name = ""
    elements: Count = 0
    value: bool | int | float | Name | None = None


class OptimizerState(WireMessage, tag="state"):
    """The state of a script's optimizer for one shard; the tensors follow as bytes.

    A server answers Fetch with it. Worker 0 sends it to replace the state.
    """

    shard: Index
    entries: list[StateEntry]
    block: WireBlock


class Snapshot(WireMessage, tag="snapshot"):
    """The parameters of a shard at a version.

    request: number of the TakeSnapshot that it answers; 0 if it answers a Fetch.
    """

    shard: Index
    version: Count
    request: Count
    now: Count
    applied: Count  # gradients that this shard has applied
    block: WireBlock


# -- processes of a run and the coordinator ------------------------------------------------


class JoinRun(WireMessage, tag="join"):
    """A process is ready to take part. Servers say where they listen, workers what they train."""

    outpace: Name  # version
    pid: Count
    endpoint: Text = ""
    layout: Layout = ""  # names, shapes and dtypes of the parameters
    used: Text = ""  # kind and settings of a script's optimizer, as JSON
    buffer_bytes: Count = 0  # of the model's buffers and untrained parameters
    layers: list[Count] = msgspec.field(default_factory=list)  # elements of each parameter
    dtype: Name = ""
    digest: Name = ""  # of the worker's initial parameters
    state: Name = ""  # digest of the optimizer's state; empty if workers may differ, or without any
    gpu: Name = ""  # unique name of the GPU they are on; empty: a CPU, or several GPUs
    follows: bool = False  # the worker's script trains with its own collectives
    host: Name = ""  # name of its host
    machine: Name = ""  # equal in processes with the same network interfaces; empty: unknown


class Plan(WireMessage, tag="plan"):
    """All processes have joined: where the servers are, and what the run starts from.

    first: the first iteration of each worker, where a run continues; empty: all begin with 0. late:
    the others train already, and the worker takes the place of one that was lost. kept: for each
    worker, the bytes of the ScriptState that follows; empty if none does. ended: workers whose
    scripts had come to their end before the checkpoint. before, places: of `Redivided`; 0 if there
    were as many workers before. resume: without servers, the folder of the checkpoint from which
    the workers continue; empty: they begin.
    """

    endpoints: list[Text]  # of the servers
    keys: list[Text]  # their public keys
    layers: list[Count]  # elements of each parameter
    bounds: list[Count]  # between the servers' slices of the flat parameters, from 0 to the end
    dtype: Name
    digest: Name  # of worker 0's parameters, which all workers start from
    share: bool = False  # True if some workers' initial parameters differ from worker 0's
    backend: Name = "gloo"  # of torch.distributed
    first: list[Count] = msgspec.field(default_factory=list)
    late: bool = False
    kept: list[Count] = msgspec.field(default_factory=list)
    ended: list[Index] = msgspec.field(default_factory=list)
    before: Count = 0
    places: list[tuple[Count, Count]] = msgspec.field(default_factory=list)
    resume: Text = ""

    @property
    def slices(self) -> list[slice]:
        """The slice of the flat parameters that each server owns."""
        return [slice(low, high) for low, high in pairwise(self.bounds)]


class ModelBuffers(WireMessage, tag="extras"):
    """Worker 0's buffers and untrained parameters as bytes, at the start and at the end."""

    block: WireBlock


class Ready(WireMessage, tag="ready"):
    """A process has done what comes before the first iteration."""


class Go(WireMessage, tag="go"):
    """All processes are ready, and the time of the run begins.

    On the machine whose boot id is `boot`, that time is the monotonic clock minus `origin`.

    probe: ns; if not 0, the time does not begin yet: the worker measures the network for at most
    so long, and says Ready again.
    """

    origin: Count = 0
    boot: Name = ""
    probe: Count = 0


class Compared(WireMessage, tag="compared"):
    """What a worker's script has in an iteration, to be compared with the other workers' scripts.

    what: `gradient`: the SHA-256 of its first gradient, to find workers with equal data; empty if
    there is none in this iteration, or all of it is zero. `settings`: its optimizer settings, which
    differ from another worker's: of each parameter group, as JSON.
    """

    what: Literal["gradient", "settings"]
    iteration: Count
    text: Layout


class TakeSnapshot(WireMessage, tag="read"):
    """The coordinator asks for a Snapshot, as soon as the shard has this version.

    request: a number from 1, which the Snapshot repeats; 0: for a VersionReached only.
    """

    request: Count
    version: Count = 0


class ChangePolicy(WireMessage, tag="change"):
    """The coordinator to a server: follow another policy, or another condition.

    what: `policy`, with its configuration as JSON in `text`; or `pull` or `push`, with the name
    of a function that the server's own configuration names too (empty: no condition).
    """

    what: Name
    text: Text


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


class TrainingDone(WireMessage, tag="left"):
    """A worker takes no more part in the training; its script may still run.

    pushed: iterations up to the last one that a script has pushed to any server.
    ended: True if the script has come to its end; False if the run stopped it, such as at
        stop.iterations.
    batch_size: of the DataLoader of a script; 0: it is not known.
    """

    pushed: Count = 0
    ended: bool = False
    batch_size: Count = 0


class ProcessDone(WireMessage, tag="finished"):
    """A process has sent everything it had to send, and ends when the coordinator has it.

    The coordinator answers with the same message: everything has arrived.
    """


class StopRun(WireMessage, tag="stop"):
    """The coordinator to all: the run is over. early: before its configured end."""

    reason: Text
    early: bool = False


class Refused(WireMessage, tag="refused"):
    """The receiver's last message was refused; no later message will be accepted.

    replaced_by: generation of the process that has taken the receiver's place; 0: none has.
    """

    reason: Text
    replaced_by: Count = 0

    @classmethod
    def replaced(cls, generation: int) -> Refused:
        """Return the message for a process whose place one of this generation has taken."""
        return cls("another process has its place", generation)


# -- two transports: memory that their processes share (`net.memory`) -----------------------


class OfferMemory(WireMessage, tag="offer memory"):
    """Large blocks of this process will lie in memory that the other one can open.

    pid, descriptor: where it is found. token: with which it begins. boot: id of the machine's boot.
    slots, nbytes: their number, and the size of each. is_read: the other process only reads them.
    """

    pid: Index
    descriptor: Index
    token: Name
    boot: Name
    slots: Index
    nbytes: Count
    is_read: bool


class MemoryAnswer(WireMessage, tag="memory"):
    """The answer to OfferMemory; later, that a block which came in the memory is not used any more.

    has: blocks may come in this memory. reason: why the memory cannot be had; empty if that was to
    be expected. slot: that of the block; None in the answer.
    """

    has: bool
    reason: Annotated[str, msgspec.Meta(max_length=400)] = ""
    slot: Index | None = None
