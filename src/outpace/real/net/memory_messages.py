"""Wire messages about memory that processes of one machine share (`net.memory`).

They are between two transports: nothing above these hears of them. A slot is a piece of memory that
holds one block at a time.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from outpace.real.net.messages import Name
from outpace.sync.messages import Count, Index, WireMessage


class OfferSlot(WireMessage, tag="offer slot"):
    """Some blocks of this process will lie in this memory. Whoever shows the token gets it, once.

    address: where to show it, the name of an abstract Unix socket. boot: id of the machine's boot.
    """

    slot: Index
    nbytes: Count
    address: Name
    token: Name
    boot: Name


class HasSlot(WireMessage, tag="has slot"):
    """The answer to OfferSlot: blocks may come in this memory."""

    slot: Index


class LacksSlot(WireMessage, tag="lacks slot"):
    """The answer to OfferSlot if the memory cannot be had.

    is_final: this process can get no memory of the other one, so no more need be offered.
    """

    slot: Index
    reason: Annotated[str, msgspec.Meta(max_length=400)]
    is_final: bool = False


class FreeSlot(WireMessage, tag="free slot"):
    """The block that came in this memory is not used any more."""

    slot: Index


class DropSlot(WireMessage, tag="drop slot"):
    """No block will come in this memory any more."""

    slot: Index
