"""Messages of programs as bodies that travel, and back."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block, StepSettings
from outpace.real.net.bodies import (
    AbortBody,
    AckBody,
    Body,
    CloseBody,
    DoneBody,
    LeaveBody,
    PullBody,
    PushBody,
    ReplyBody,
)
from outpace.real.net.wire import head_of
from outpace.sync.messages import Abort, Ack, Close, Done, Leave, Message, Pull, Push, Reply


def for_shard(body: Body, block: Block | None) -> Sequence[Push | Pull | Leave]:
    """What this body says to a shard, in this order; nothing if it is not for one."""
    if isinstance(body, PushBody):
        settings = None if body.settings is None else StepSettings(body.settings, body.unused)
        push = Push(body.worker, body.iteration, body.version, block, settings)
        if body.coin is None:
            return (push,)
        return push, Pull(body.worker, body.iteration, body.coin)
    if isinstance(body, PullBody):
        return (Pull(body.worker, body.iteration, body.coin),)
    if isinstance(body, LeaveBody):
        return (Leave(body.worker),)
    return ()


def for_scheduler(body: Body) -> Done | Leave | None:
    """What this body says to who cuts iterations off; None: nothing."""
    if isinstance(body, DoneBody):
        return Done(body.worker, body.iteration, body.seconds, body.share, body.finished)
    return Leave(body.worker) if isinstance(body, LeaveBody) else None


def scheduler_body(message: Message) -> CloseBody | AbortBody:
    """What who cuts iterations off says, to servers or to a worker."""
    if isinstance(message, Abort):
        return AbortBody(message.iteration)
    assert isinstance(message, Close)
    return CloseBody(message.iteration, list(message.workers), message.by + 1)


def for_worker(body: ReplyBody | AckBody, block: Block | None) -> Reply | Ack:
    """What this body says to a worker's program."""
    if isinstance(body, AckBody):
        return Ack(body.shard, body.worker, body.iteration)
    return Reply(
        body.shard, body.worker, body.iteration, body.version, body.clock, body.held, block
    )


def reply_body(reply: Reply, block: Block) -> ReplyBody:
    """What travels in front of the block."""
    return ReplyBody(
        reply.shard,
        reply.worker,
        reply.iteration,
        reply.version,
        reply.clock,
        reply.held,
        head_of(block),
    )
