"""Wire messages about memory that the two processes of a connection share (`net.memory`).

They are between two transports: nothing above these hears of them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from outpace.real.net.messages import Name
from outpace.sync.messages import Count, Index, WireMessage


class OfferMemory(WireMessage, tag="offer memory"):
    """Large blocks of this process will lie in memory that the other one can open.

    pid, descriptor: where it is found. token: with which it begins. boot: id of the machine's boot.
    slots, nbytes: their number, and the size of each. is_read: the other process only reads them.
    """

    pid: Index
    descriptor: Index
    token: Name
    boot: Name
    slots: Index
    nbytes: Count
    is_read: bool


class MemoryAnswer(WireMessage, tag="memory"):
    """The answer to OfferMemory; later, that a block which came in the memory is not used any more.

    has: blocks may come in this memory. reason: why the memory cannot be had; empty if that was to
    be expected. slot: that of the block; None in the answer.
    """

    has: bool
    reason: Annotated[str, msgspec.Meta(max_length=400)] = ""
    slot: Index | None = None
