"""Wire messages, which the processes of a run send to each other.

Messages of programs are sent unchanged (`sync.messages`). Messages about averages and meetings of
workers are in `peer_messages`, messages about checkpoints in `checkpoint_messages`, messages of the
first measurement in `probes`, reports in `report_messages`, all others in this file. `wire` has the
envelope of messages. Every field is typed and bounded, so that decoding refuses values that cannot
be right.
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
    """A part of a message, or of its envelope."""


class BlockPiece(WireMessage, tag="more"):
    """The next piece of the block of an earlier message."""

    offset: Count  # bytes


# -- workers and servers: parameters ---------------------------------------------------


class Initialize(WireMessage, tag="initialize"):
    """Tells a server to start from this block, with this optimizer. Sent by worker 0.

    optimizer: empty, or the name of a user's optimizer. groups: for each parameter group of such an
    optimizer, its pieces as (parameter number, low, high) of the block. has_state: an
    OptimizerState follows, with which the optimizer begins.
    """

    optimizer: Name
    settings: list[dict[str, Any]]
    groups: list[list[tuple[Index, Count, Count]]]
    block: WireBlock
    has_state: bool = False


class Fetch(WireMessage, tag="fetch"):
    """A worker's request to a server for a Snapshot or the OptimizerState.

    what: `initial` parameters, `final` parameters (once all workers have left), or the `state`.
    """

    what: Literal["initial", "final", "state"]


class StateEntry(WirePart):
    """An entry of an optimizer's state: a tensor, or a plain value if `dtype` is empty.

    elements: 0 for a tensor without a dimension.
    """

    parameter: Index
    name: Name
    dtype: Name = ""
    elements: Count = 0
    value: bool | int | float | Name | None = None


class OptimizerState(WireMessage, tag="state"):
    """The state of a script's optimizer for one shard; the tensors follow as bytes.

    It is a server's answer to Fetch. Worker 0 sends it to replace the state.
    """

    shard: Index
    entries: list[StateEntry]
    block: WireBlock


class Snapshot(WireMessage, tag="snapshot"):
    """The parameters of a shard, with their version.

    request: number of the TakeSnapshot that this answers; 0 if it answers a Fetch.
    """

    shard: Index
    version: Count
    request: Count
    now: Count
    applied: Count  # number of gradients that this shard has applied
    block: WireBlock


# -- processes of a run and the coordinator ------------------------------------------------


class JoinRun(WireMessage, tag="join"):
    """Tells that a process is ready. Servers add their endpoint, workers the model they train."""

    outpace: Name  # version
    pid: Count
    endpoint: Text = ""
    layout: Layout = ""  # names, shapes and dtypes of the parameters
    used: Text = ""  # kind and settings of a script's optimizer, as JSON
    buffer_bytes: Count = 0  # size of the model's buffers and untrained parameters
    layers: list[Count] = msgspec.field(default_factory=list)  # elements of each parameter
    dtype: Name = ""
    digest: Name = ""  # digest of the worker's initial parameters
    state: Name = ""  # digest of the optimizer's state; empty if workers may differ, or without any
    gpu: Name = ""  # unique name of the GPU with the parameters; empty: a CPU, or several GPUs
    follows: bool = False  # the worker's script trains with its own collectives
    host: Name = ""  # name of its host
    machine: Name = ""  # equal in processes with the same network interfaces; empty: unknown


class Plan(WireMessage, tag="plan"):
    """Tells that all processes have joined: where the servers are, and how the run starts.

    Attributes:
        first: the first iteration of each worker; empty: each worker begins with iteration 0.
        late: True: the worker replaces a lost process, and the other workers train already.
        kept: for each worker, the bytes of the ScriptState that follows; empty: none follows.
        ended: workers whose scripts had ended before the checkpoint.
        before: the number of workers at the checkpoint if it was another number, else 0.
        places: see `Redivided`.
        resume: without servers, the folder of the checkpoint from which the workers continue;
            empty: the run is new.
    """

    endpoints: list[Text]  # of the servers
    keys: list[Text]  # their public keys
    layers: list[Count]  # elements of each parameter
    # bounds between the servers' slices of the flat parameters, from 0 to the end
    bounds: list[Count]
    dtype: Name
    digest: Name  # digest of worker 0's parameters, with which all workers start
    share: bool = False  # True if some workers' initial parameters differ from worker 0's
    backend: Name = "gloo"  # backend of torch.distributed
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
    """Tells that a process has finished its preparation for the first iteration."""


class Go(WireMessage, tag="go"):
    """Tells that all processes are ready, and the time of the run begins.

    On the machine whose boot id is `boot`, that time is the monotonic clock minus `origin`.

    probe: ns; if not 0, the time does not begin yet: the worker measures the network for at most
    this time, and sends Ready again.
    """

    origin: Count = 0
    boot: Name = ""
    probe: Count = 0


class Compared(WireMessage, tag="compared"):
    """Data of a worker's script in an iteration, for comparison with other workers' scripts.

    what: `gradient`: the SHA-256 of its first gradient, to find workers with equal data; empty if
    there is no gradient in this iteration, or if it is zero. `settings`: the settings of each
    parameter group of its optimizer, as JSON, because they differ from another worker's.
    """

    what: Literal["gradient", "settings"]
    iteration: Count
    text: Layout


class TakeSnapshot(WireMessage, tag="read"):
    """The coordinator's request for a Snapshot as soon as the shard has this version.

    request: a number from 1, which the Snapshot repeats; 0: a VersionReached is enough.
    """

    request: Count
    version: Count = 0


class ChangePolicy(WireMessage, tag="change"):
    """The coordinator's order to a server to follow another policy or another condition.

    what: `policy`, with its configuration as JSON in `text`; or `pull` or `push`, with the name
    of a function that the server's own configuration names too (empty: no condition).
    """

    what: Name
    text: Text


class ReplaceWorker(WireMessage, tag="replace"):
    """The coordinator's order to accept only the process of this generation as `worker`.

    stays: False if there will be no such process, because the worker has left the run.
    """

    worker: Index
    generation: Count
    stays: bool


class WorkerReplaced(WireMessage, tag="replaced"):
    """A server's answer to ReplaceWorker, after the last message of the old process.

    watermark: highest iteration that the worker has pushed to this shard; -1: none. clock: V, the
    number of iterations that the shard has finished. If a worker leaves, both numbers are from
    before it left.
    """

    worker: Index
    generation: Count
    watermark: Watermark
    clock: Count


class TrainingDone(WireMessage, tag="left"):
    """Tells that a worker does not train any more; its script may still be running.

    pushed: iterations up to the last one that a script has pushed to any server.
    ended: True if the script has ended; False if the run stopped it, such as at stop.iterations.
    batch_size: batch size of the script's DataLoader; 0: not known.
    """

    pushed: Count = 0
    ended: bool = False
    batch_size: Count = 0


class ProcessDone(WireMessage, tag="finished"):
    """Tells that a process has sent everything, and ends when the coordinator has received it.

    The coordinator answers with the same message when everything has arrived.
    """


class StopRun(WireMessage, tag="stop"):
    """Tells all processes that the run is over. early: before its configured end."""

    reason: Text
    early: bool = False


class Refused(WireMessage, tag="refused"):
    """Tells that the receiver's last message was refused, and no later one will be accepted.

    replaced_by: generation of the process that has replaced the receiver; 0: it was not replaced.
    """

    reason: Text
    replaced_by: Count = 0

    @classmethod
    def replaced(cls, generation: int) -> Refused:
        """Return the message to a process that was replaced by a process of this generation."""
        return cls("another process has its place", generation)


# -- two transports: memory that their processes share (`net.memory`) -----------------------


class OfferMemory(WireMessage, tag="offer memory"):
    """Offers memory for large blocks of this process that the other process can open.

    pid, descriptor: where the memory is found. token: the bytes with which it begins. boot: id of
    the machine's boot. slots, nbytes: number of slots, and size of each. is_read: True: the other
    process only reads them.
    """

    pid: Index
    descriptor: Index
    token: Name
    boot: Name
    slots: Index
    nbytes: Count
    is_read: bool


class MemoryAnswer(WireMessage, tag="memory"):
    """The answer to OfferMemory; later, a report that a block in the memory is not used any more.

    Attributes:
        has: True: blocks may be sent in this memory.
        reason: why the memory cannot be used; empty if the processes are on different machines, or
            shared memory is not available at all.
        slot: the slot of the block that is not used any more; None in the answer.
    """

    has: bool
    reason: Annotated[str, msgspec.Meta(max_length=400)] = ""
    slot: Index | None = None
