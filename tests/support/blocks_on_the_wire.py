"""Wire messages and their blocks, which a test checks separately."""

from __future__ import annotations

import msgspec

from outpace.blocks.block import Block, whole
from outpace.real.net.block_frames import head_in, head_of
from outpace.sync.messages import WireMessage


def block_in(message: WireMessage) -> Block | None:
    """Return the block of a message."""
    return getattr(message, message.block_field, None)


def announced(message: WireMessage) -> WireMessage:
    """Return the message before its block has arrived: with the head of the block."""
    block = block_in(message)
    return message if block is None else with_block(message, head_of(block))


def with_block(message: WireMessage, block: object) -> WireMessage:
    """Return a copy of a message with this block, or its head."""
    return msgspec.structs.replace(message, **{message.block_field: block})


def apart(message: WireMessage) -> tuple[WireMessage, Block | None]:
    """Return a message with the head of its block, which can be compared, and the block."""
    block = block_in(message)
    return announced(message), None if block is None else whole(block)


def due(message: WireMessage) -> tuple[str, int] | None:
    """Return the block that a message announces, as (dtype, elements): any block is expected."""
    head = head_in(message)
    return None if head is None else (head.dtype, head.elements)


def any_block(_: str, message: WireMessage) -> tuple[str, int] | None:
    """Expect any block, as `Handlers.expect`."""
    return due(message)
