"""Translate between the messages of programs and wire messages."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block, StepSettings
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import (
    WireAbort,
    WireAck,
    WireClose,
    WireDone,
    WireLeave,
    WireMessage,
    WirePull,
    WirePush,
    WireReply,
)
from outpace.sync.messages import Abort, Ack, Close, Done, Leave, Message, Pull, Push, Reply


def for_shard(received: WireMessage, block: Block | None) -> Sequence[Push | Pull | Leave]:
    """Return the messages for a shard in a wire message, in order; empty if it has none."""
    if isinstance(received, WirePush):
        worker, iteration, version = received.worker, received.iteration, received.version
        settings = (
            None if received.settings is None else StepSettings(received.settings, received.unused)
        )
        push = Push(worker, iteration, version, block, settings)
        return (push,) if received.coin is None else (push, Pull(worker, iteration, received.coin))
    if isinstance(received, WirePull):
        return (Pull(received.worker, received.iteration, received.coin),)
    if isinstance(received, WireLeave):
        return (Leave(received.worker),)
    return ()


def for_scheduler(received: WireMessage) -> Done | Leave | None:
    """Return the message for the scheduler that cuts iterations off, if it is one."""
    if isinstance(received, WireDone):
        return Done(
            received.worker,
            received.iteration,
            received.seconds,
            received.share,
            received.finished,
        )
    return Leave(received.worker) if isinstance(received, WireLeave) else None


def for_worker(received: WireReply | WireAck, block: Block | None) -> Reply | Ack:
    """Return the message for a worker's program."""
    shard, worker, iteration = received.shard, received.worker, received.iteration
    if isinstance(received, WireAck):
        return Ack(shard, worker, iteration)
    return Reply(shard, worker, iteration, received.version, received.clock, received.held, block)


def wire_from_scheduler(message: Message) -> WireClose | WireAbort:
    """Encode what the scheduler that cuts iterations off tells servers and workers."""
    if isinstance(message, Abort):
        return WireAbort(message.iteration)
    assert isinstance(message, Close)
    return WireClose(message.iteration, list(message.workers), message.by + 1)


def wire_reply(reply: Reply, block: Block) -> WireReply:
    """Return the wire message that announces the block of a reply."""
    return WireReply(
        reply.shard,
        reply.worker,
        reply.iteration,
        reply.version,
        reply.clock,
        reply.held,
        head_of(block),
    )
