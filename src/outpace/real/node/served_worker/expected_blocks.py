"""Which blocks may come with the messages of a server to a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from outpace.real.net.block_frames import on_the_wire
from outpace.real.net.messages import BlockHead, OptimizerState, Snapshot, WireReply
from outpace.real.net.probe_messages import ProbeAnswer
from outpace.real.net.probes import SIZES
from outpace.real.node.optimizer_state import bytes_due
from outpace.sync.messages import WireMessage

Expect: TypeAlias = Callable[[str, WireMessage], tuple[str, int] | None]  # see `Handlers`


def expected_of(
    server: int, head: BlockHead, lengths: Mapping[int, int], *, is_narrow: bool
) -> Expect:
    """Return a check that accepts only blocks of this server.

    Args:
        head: of the server's block.
        lengths: how many elements of each tensor of a script the server has.
        is_narrow: True if answers to pulls carry bfloat16.
    """
    due = head.dtype, head.elements
    due_reply = on_the_wire(due) if is_narrow else due

    def expected(_: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, WireReply):
            return due_reply if message.shard == server else None
        if isinstance(message, Snapshot):
            return due if message.shard == server else None
        if isinstance(message, OptimizerState) and message.shard == server:
            size = bytes_due(message.entries, lengths)
            return None if size is None else ("uint8", size)
        if isinstance(message, ProbeAnswer) and message.shard == server:
            size = message.block.elements
            return ("uint8", size) if size in SIZES else None
        return None

    return expected
