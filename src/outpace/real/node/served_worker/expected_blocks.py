"""Which blocks may come with the messages of a server to a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from outpace.blocks.division import Ranges
from outpace.real.net.block_frames import on_the_wire
from outpace.real.net.messages import BlockHead, OptimizerState, Snapshot, WireReply
from outpace.real.net.probe_messages import ProbeAnswer
from outpace.real.net.probes import SIZES
from outpace.real.node.optimizer_state import bytes_due
from outpace.real.node.served_worker.divisions import Divisions
from outpace.sync.messages import WireMessage

Expect: TypeAlias = Callable[[str, WireMessage], tuple[str, int] | None]  # see `Handlers`


def expected_of(
    server: int,
    head: BlockHead | None,
    divisions: Divisions,
    lengths: Callable[[Ranges], Mapping[int, int]],
    *,
    is_narrow: bool,
) -> Expect:
    """Return a check that accepts only blocks of this server.

    Args:
        head: of the server's block at the start of the run; None: the server has joined later.
        lengths: returns how many elements of each tensor of a script are in a part.
        is_narrow: True if answers to pulls carry bfloat16.
    """
    due = None if head is None else (head.dtype, head.elements)

    def expected(_: str, message: WireMessage) -> tuple[str, int] | None:
        is_reply = isinstance(message, WireReply)
        if isinstance(message, WireReply | Snapshot):
            if message.shard != server:
                return None
            found = divisions.block(server, message.division) or due
            return on_the_wire(found) if found and is_narrow and is_reply else found
        if isinstance(message, OptimizerState) and message.shard == server:
            part = divisions.part(server, message.division)
            size = bytes_due(message.entries, lengths(part))
            return None if size is None else ("uint8", size)
        if isinstance(message, ProbeAnswer) and message.shard == server:
            size = message.block.elements
            return ("uint8", size) if size in SIZES else None
        return None

    return expected
