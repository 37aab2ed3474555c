"""What travels between processes: a header for every message, and the kinds of body.

Every field is typed and bounded, so that decoding refuses what cannot be. Tensors do not
travel in here: a body says what block comes with it, and its bytes follow as frames.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import torch

from outpace.record.recorder import Totals

_LARGEST: Final = 2**62
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100_000)]
Layout: TypeAlias = Annotated[str, msgspec.Meta(max_length=2_000_000)]
Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]

DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
    )
}
MOST_ROWS: Final = 1 << 16  # of a trace, in one message
PHANTOM: Final = "phantom"  # bytes that nobody computes with


class _Body(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    pass


class BlockHead(_Body):
    """A block that comes with a body: so many elements of this dtype."""

    dtype: Name
    elements: Count

    @property
    def nbytes(self) -> int:
        return self.elements * (1 if self.dtype == PHANTOM else DTYPES[self.dtype].itemsize)


class More(_Body, tag="more"):
    """The next piece of the block whose body came before."""

    offset: Count  # bytes


# -- workers and servers -------------------------------------------------------------


class PushBody(_Body, tag="push"):
    """messages.Push. `settings` and `unused` as in messages.StepSettings.

    coin: that of the pull that comes right after it, if one does.
    """

    worker: Index
    iteration: Count
    version: Count
    block: BlockHead | None = None
    coin: Probability | None = None
    settings: list[dict[str, Any]] | None = None
    unused: list[Index] = []


class PullBody(_Body, tag="pull"):
    """messages.Pull"""

    worker: Index
    iteration: Count
    coin: Probability


class LeaveBody(_Body, tag="leave"):
    """messages.Leave"""

    worker: Index


class ReplyBody(_Body, tag="reply"):
    """messages.Reply"""

    shard: Index
    worker: Index
    iteration: Count
    version: Count
    clock: Count
    held: Count
    block: BlockHead


class AckBody(_Body, tag="ack"):
    """messages.Ack"""

    shard: Index
    worker: Index
    iteration: Count


class DoneBody(_Body, tag="done"):
    """messages.Done. share: NaN: unknown."""

    worker: Index
    iteration: Count
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]
    share: float
    finished: bool


class CloseBody(_Body, tag="close"):
    """messages.Close, from the coordinator; `by` counts from 1, 0: nobody."""

    iteration: Count
    workers: list[Index]
    by: Count


class AbortBody(_Body, tag="abort"):
    """messages.Abort, from the coordinator"""

    iteration: Count


class Initialize(_Body, tag="initialize"):
    """Worker 0 to a server: start from this block, by this optimizer.

    optimizer: empty, or the name of the user's; then groups has for each of its parameter
    groups the (parameter number, low, high) of its pieces of the block.
    """

    optimizer: Name
    settings: list[dict[str, Any]]
    groups: list[list[tuple[Index, Count, Count]]]
    block: BlockHead


class Fetch(_Body, tag="fetch"):
    """A worker to a server: send a Snapshot. `final`: once all workers have left."""

    final: bool = False


class Snapshot(_Body, tag="snapshot"):
    """The parameters of a shard at a version. `request`: the ReadAll it answers; 0: a Fetch."""

    shard: Index
    version: Count
    request: Count
    now: Count
    applied: Count  # gradients, as this shard counts them
    block: BlockHead


# -- workers without servers, and the coordinator -----------------------------------------


class Joins(_Body, tag="joins"):
    """A worker takes part in this all-reduce, and perhaps waits for the others."""

    number: Count


class Broken(_Body, tag="broken"):
    """The group of that generation can do no more."""

    generation: Count
    reason: Text


class Regroup(_Body, tag="regroup"):
    """Coordinator to workers: from now on these belong to the group, the others do not."""

    generation: Count
    members: list[Index]


# -- the same, in pairs (gossip) -----------------------------------------------------------


class Seeks(_Body, tag="seeks"):
    """A worker wants to average with another, beside this iteration."""

    iteration: Count


class Meet(_Body, tag="meet"):
    """Coordinator to both: average now, the one who asked for it with its partner."""

    number: Count
    seeker: Index
    partner: Index
    began: Count  # when both were free: the time of the run


class Met(_Body, tag="met"):
    """For this worker that average is over."""

    number: Count


class Missed(_Body, tag="missed"):
    """This worker cannot reach the other in that average."""

    number: Count
    reason: Text


class Parted(_Body, tag="parted"):
    """Coordinator to a worker: the other in that average is gone; give it up, unless it is over."""

    number: Count


class Alone(_Body, tag="alone"):
    """Coordinator to a worker: nobody is left to average with."""


# -- members and coordinator -----------------------------------------------------------


class Join(_Body, tag="join"):
    """A process is there. Servers say where they listen, workers what they train."""

    outpace: Name
    pid: Count
    endpoint: Text = ""
    layout: Layout = ""  # names, shapes and dtypes of the parameters
    extras: Count = 0  # bytes of what the model has beside them
    layers: list[Count] = []  # how many elements each of the parameters has
    dtype: Name = ""
    digest: Name = ""  # of the parameters it would start from
    gpu: Name = ""  # which one they are on; empty: they are on a CPU, or on several


class Plan(_Body, tag="plan"):
    """Everybody has joined: who is where, and what they start from."""

    endpoints: list[Text]  # of the servers
    keys: list[Text]  # their public keys; empty if insecure
    layers: list[Count]  # how many elements each of the parameters has
    bounds: list[Count]  # between the servers' parts of them, from 0 to the end
    dtype: Name
    digest: Name  # of the parameters all start from: worker 0's
    store: Text = ""  # host and port, through which workers without servers meet
    share: bool = False  # do some of them have other parameters?
    backend: Name = "gloo"  # of torch.distributed

    @property
    def slices(self) -> list[slice]:
        """What each server owns of the flat vector."""
        return [slice(low, high) for low, high in pairwise(self.bounds)]


class Extras(_Body, tag="extras"):
    """The bytes of worker 0's buffers and untrained parameters: at the start, and at the end."""

    block: BlockHead


class Ready(_Body, tag="ready"):
    """It has done what comes before the first iteration."""


class Go(_Body, tag="go"):
    """Everybody is ready; the run's time begins. On the coordinator's own machine (`boot`) it
    is the monotonic clock minus `origin`."""

    origin: Count
    boot: Name


class ReadAll(_Body, tag="read"):
    """Coordinator to a server: send a Snapshot that says it answers this request (from 1),
    as soon as the shard has this version."""

    request: Count
    version: Count = 0


class Change(_Body, tag="change"):
    """Coordinator to a server: from now on another policy, or another condition.

    what: `policy`, then text is its configuration as JSON; `pull` or `push`, then it is the
    name of a function, which must be in the server's own configuration; empty: none.
    """

    what: Name
    text: Text


class Rows(_Body, tag="rows"):
    """Rows of the trace, as integers, and the sums over all its rows so far."""

    totals: Totals
    block: BlockHead | None = None


class Left(_Body, tag="left"):
    """A worker has done its part in the training; its script may go on."""


class Finished(_Body, tag="finished"):
    """The process has done what it had to, and ends."""


class Failed(_Body, tag="failed"):
    """It cannot go on. kind: the class of the error; lost: the server it lost, if it did."""

    kind: Name
    text: Text
    lost: Name = ""


class Notice(_Body, tag="notice"):
    """Something a person should know; the run goes on."""

    text: Text


class Stop(_Body, tag="stop"):
    """Coordinator to all: the run is over. `early`: not as it was meant to end."""

    reason: Text
    early: bool = False


class Refused(_Body, tag="refused"):
    """What you sent was not accepted, and nothing further from you will be."""

    reason: Text


Body: TypeAlias = (
    More
    | PushBody
    | PullBody
    | LeaveBody
    | ReplyBody
    | Initialize
    | Fetch
    | Snapshot
    | Join
    | Plan
    | Extras
    | Ready
    | Go
    | ReadAll
    | Change
    | Rows
    | Left
    | Finished
    | Failed
    | Notice
    | Stop
    | Refused
    | AckBody
    | DoneBody
    | CloseBody
    | AbortBody
    | Joins
    | Broken
    | Regroup
    | Seeks
    | Meet
    | Met
    | Missed
    | Parted
    | Alone
)


class Header(_Body):
    """In front of every message. `serial` counts the messages of one connection."""

    run: Count
    epoch: Count
    serial: Count
    body: Body


class Envelope(_Body):
    """A Header whose body is still to be decoded."""

    run: Count
    epoch: Count
    serial: Count
    body: msgspec.Raw
