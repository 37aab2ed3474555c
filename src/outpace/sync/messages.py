"""What workers and shards say to each other: one type for state machines and wire.

Tensors travel as blocks (`blocks.block`). The receiver of a block owns it: the shard may write
into the gradient of a push.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from outpace.blocks.block import Block, StepSettings
from outpace.support.units import Time


class Push(msgspec.Struct, gc=False):
    """`worker` has finished `iteration`; here is its gradient on one shard.

    Without gradient it *abstains* (a skipped AMP step, a refused NaN, work that was cut
    off, no data left): its progress counts, nothing is applied.
    """

    worker: int
    iteration: int
    version: int  # of the shard's parameters that the gradient was computed from
    gradient: Block | None = None
    settings: StepSettings | None = None


class Pull(msgspec.Struct, gc=False):
    """`worker` has finished `iteration` and wants the parameters for what comes next.

    `coin` is the pull's number in [0, 1) for policies that block with a probability.
    """

    worker: int
    iteration: int
    coin: float = 0.0


class Leave(msgspec.Struct, gc=False):
    """`worker` is done: nobody waits for it any more."""

    worker: int


class Reply(msgspec.Struct, gc=False):
    """Answers a pull. The runtime fills in `parameters` (see `Shard.read`)."""

    shard: int
    worker: int
    iteration: int  # of the pull
    version: int  # number of updates in the parameters
    clock: int  # V, the iterations that the shard has finished
    held: Time  # how long the shard kept the pull waiting
    parameters: Block | None = None


class SetPolicy(msgspec.Struct, gc=False):
    """From now on the shard follows this `sync.Policy`. No worker may send it."""

    policy: Any


class Done(msgspec.Struct, gc=False):
    """`worker` has computed its gradient of `iteration`, or stopped: to whoever cuts off.

    seconds: how long it has computed. share: of the computation done by then, as far as the
    worker can tell; NaN: it cannot. finished: is there a gradient?
    """

    worker: int
    iteration: int
    seconds: float
    share: float
    finished: bool


class Close(msgspec.Struct, gc=False):
    """The iteration is over: the gradients of these workers count, and no others.

    by: the worker whose message ended it; -1: none did. No worker may send it.
    """

    iteration: int
    workers: Sequence[int]
    by: int = -1


class Abort(msgspec.Struct, gc=False):
    """To a worker: that iteration, and all before it, are over; do not compute them."""

    iteration: int


class Ack(msgspec.Struct, gc=False):
    """A shard has taken in a push: it is applied, or filed until its iteration is finished."""

    shard: int
    worker: int
    iteration: int


Message: TypeAlias = Push | Pull | Leave | Reply | Ack | SetPolicy | Done | Close | Abort
# The address of who decides for all servers: holds a global barrier, or cuts iterations off.
SCHEDULER: Final = "scheduler"


def size_bytes(message: Message) -> int:
    """The bytes of its tensors; headers count as nothing."""
    if isinstance(message, Push):
        return 0 if message.gradient is None else message.gradient.nbytes
    if isinstance(message, Reply):
        return 0 if message.parameters is None else message.parameters.nbytes
    return 0


@cache
def worker_name(worker: int) -> str:
    """The address of worker n."""
    return f"worker-{worker}"


@cache
def server_name(server: int) -> str:
    """The address of server m."""
    return f"server-{server}"
