"""Translate between the messages of programs that carry a block and their wire messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.blocks.block import Block, StepSettings
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import WirePush, WireReply
from outpace.sync.messages import (
    Leave,
    Pause,
    Pull,
    Push,
    Rejoin,
    Reply,
    WireMessage,
)

_ALONE: Final = Pull | Leave | Pause | Rejoin


def wire_push(push: Push, pull: Pull | None, settings: StepSettings | None) -> WirePush:
    """Return the wire message that announces the gradient of a push.

    Args:
        pull: the pull that comes right after it, if one does.
        settings: of the optimizer, if they may change.
    """
    gradient = push.gradient
    head = None if gradient is None else head_of(gradient)
    coin = None if pull is None else pull.coin
    wire = WirePush(push.worker, push.iteration, push.version, head, coin, skipped=push.skipped)
    if settings is not None:
        wire.settings, wire.unused = settings.groups, settings.unused
    return wire


def for_shard(
    received: WireMessage, block: Block | None
) -> Sequence[Push | Pull | Leave | Pause | Rejoin]:
    """Return the messages for a shard in a wire message, in order; empty if it has none."""
    if isinstance(received, WirePush):
        worker, iteration, version = received.worker, received.iteration, received.version
        settings = (
            None if received.settings is None else StepSettings(received.settings, received.unused)
        )
        push = Push(worker, iteration, version, block, settings, received.skipped)
        return (push,) if received.coin is None else (push, Pull(worker, iteration, received.coin))
    return (received,) if isinstance(received, _ALONE) else ()


def wire_reply(reply: Reply, block: Block) -> WireReply:
    """Return the wire message that announces the block of a reply."""
    shard, worker, iteration, head = reply.shard, reply.worker, reply.iteration, head_of(block)
    return WireReply(shard, worker, iteration, reply.version, reply.clock, reply.held, head)


def reply_of(wire: WireReply, block: Block | None) -> Reply:
    """Return the reply to a worker's program."""
    shard, worker, iteration = wire.shard, wire.worker, wire.iteration
    return Reply(shard, worker, iteration, wire.version, wire.clock, wire.held, block)
