"""Messages between workers, shards and schedulers, in the form for programs and state machines.

A real run sends a `WireMessage` unchanged, except that a `BlockHead` stands for its block, whose
bytes follow the message. Tensors are sent as blocks (`blocks.block`). The receiver of a block owns
it: the shard may write into the gradient of a push.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

import msgspec

from outpace.blocks.block import StepSettings
from outpace.blocks.packing import BlockHead

if TYPE_CHECKING:
    from outpace.blocks.block import Block

    WireBlock: TypeAlias = Block
else:
    WireBlock = BlockHead  # stands for the block after decoding, until the block has arrived

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


class WireMessage(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base class of the messages that processes send each other.

    The tag of a class is its name in the encoding. Types and bounds are checked when a message is
    decoded, so that values that cannot be right are refused.
    """

    block_field: ClassVar[str] = "block"  # the field that has the block, if there is one
    is_counted: ClassVar[bool] = True  # tag among the messages of a run
    may_have_bytes: ClassVar[bool] = False  # for a block that is a gradient, or parameters

    @property
    def nbytes(self) -> int:
        """The bytes of the message's tensors, without headers."""
        return 0


class Push(WireMessage, tag="push"):
    """Tells that `worker` has finished `iteration`, with the gradient of a shard's parameters.

    A push without gradient *abstains* (a skipped AMP step, a refused NaN, work that was cut
    off, no data left): the worker's progress counts, and nothing is applied. `skipped` is
    True if it has no gradient because the worker chose not to send it.

    On the wire, `coin` belongs to the Pull that follows the push directly, if there is one, and
    `timed` is True if the server must record the times of this request, as the worker does.
    """

    block_field: ClassVar[str] = "gradient"
    may_have_bytes: ClassVar[bool] = True

    worker: Index
    iteration: Count
    version: Count  # version of the shard's parameters from which the gradient was computed
    gradient: WireBlock | None = None
    settings: StepSettings | None = None
    skipped: bool = False
    coin: Probability | None = None
    timed: bool = False

    @property
    def nbytes(self) -> int:
        return 0 if self.gradient is None else self.gradient.nbytes


class Pull(WireMessage, tag="pull"):
    """Tells that `worker` has finished `iteration` and asks for the parameters of the next one.

    `coin` is a random number in [0, 1) for policies that block with a probability.
    """

    worker: Index
    iteration: Count
    coin: Probability = 0.0


class Leave(WireMessage, tag="leave"):
    """Tells that `worker` has left the run; servers no longer wait for it."""

    is_counted: ClassVar[bool] = False

    worker: Index


class Pause(WireMessage, tag="pause"):
    """Tells that `worker` waits for other workers in a collective of its script.

    Until the worker ends the pause, no server and no scheduler waits for it, and it sends no
    message. It continues in the iteration in which it paused.
    """

    worker: Index
    over: bool = False


class Rejoin(WireMessage, tag="rejoin"):
    """Tells that a new process of `worker` begins with iteration `first` in the middle of the run.

    Earlier iterations of the worker count as pushed: their gradients are in the parameters, or will
    never arrive. If the worker had left, it is a member again. Its earlier pulls are not answered
    any more.
    """

    is_counted: ClassVar[bool] = False

    worker: Index
    first: Count


class Reply(WireMessage, tag="reply"):
    """Answers a pull. The runtime fills in `parameters` (see `Shard.read`)."""

    block_field: ClassVar[str] = "parameters"
    may_have_bytes: ClassVar[bool] = True

    shard: Index
    worker: Index
    iteration: Count  # iteration of the pull
    version: Count  # number of updates in the parameters
    clock: Count  # V, the iterations that the shard has finished
    held: Count  # how long the shard kept the pull waiting, in ns
    parameters: WireBlock | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.parameters is None else self.parameters.nbytes


class SetPolicy(msgspec.Struct, gc=False):
    """Replaces the policy of the shard by this `sync.Policy`. Workers must not send it."""

    policy: Any


class Lost(msgspec.Struct, gc=False):
    """Tells that the process of `worker` has ended or does not respond. Workers must not send it.

    stays: True if a new process will take its place (`Rejoin`), so that servers wait for the
    worker, even if it had left. False if it has left the run.
    """

    worker: int
    stays: bool


class Done(WireMessage, tag="done"):
    """Tells the scheduler that `worker` has computed its gradient of `iteration`, or stopped.

    seconds: duration of the computation. share: completed share of the computation; NaN: unknown.
    finished: True if there is a gradient.
    """

    worker: Index
    iteration: Count
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]
    share: float
    finished: bool


class Close(WireMessage, tag="close"):
    """Closes the iteration: only the gradients of these workers count.

    A worker that has not finished this iteration need not compute it or earlier ones. by: the
    worker whose message ended the iteration; -1: none. Workers must not send it.
    """

    iteration: Count
    workers: Sequence[Index]
    by: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)] = -1


class Ack(WireMessage, tag="ack"):
    """Confirms that a shard has received a push, and has applied or stored it.

    It also confirms a `Rejoin`; then `iteration` is the `first` of the Rejoin.
    """

    shard: Index
    worker: Index
    iteration: Count


Message: TypeAlias = (
    Push | Pull | Leave | Pause | Rejoin | Lost | Reply | Ack | SetPolicy | Done | Close
)
FromWorker: TypeAlias = Push | Pull | Leave | Pause | Rejoin | Done
# The address of the process that decides for all servers at once.
SCHEDULER: Final = "scheduler"
# Stands for the last server to answer if the worker skipped its pull.
NO_SERVER: Final = -1


@cache
def worker_name(worker: int) -> str:
    """Return the address of worker n."""
    return f"worker-{worker}"


@cache
def server_name(server: int) -> str:
    """Return the address of server m."""
    return f"server-{server}"
