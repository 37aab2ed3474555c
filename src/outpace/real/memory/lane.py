"""Large blocks of one connection, in memory that the connection's two processes share.

The connection itself carries the messages, as it does without shared memory. So their order, their
generation and their serial numbers are checked as always. The memory is used as follows:

1. Each process knows from the plan of the run how large its blocks are. It makes slots of this size
   and offers them (`OfferMemory`). The slots of the calling process are for this connection only;
   the slots of the listening process are for all its connections.
2. The other process opens the slots and confirms it, or says why it cannot (`MemoryAnswer`).
3. From then on a block is copied into a free slot, and the header of its message names the slot.
4. The receiver reports when it does not need the block any more (`MemoryAnswer` with the slot).

If no slot is free, the block is sent over the network. Blocks of probes are always sent over the
network, because a probe measures it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import torch

from outpace.blocks.block import Pieces
from outpace.real.memory.mapping import is_available
from outpace.real.memory.slots import OwnSlots, PeerSlots
from outpace.real.net.block_frames import PIECE_BYTES, IsFinite
from outpace.real.net.clock import Later
from outpace.real.net.messages import MemoryAnswer, OfferMemory
from outpace.real.net.probes import Probe
from outpace.real.net.wire import WireError
from outpace.support.machine import boot_id
from outpace.sync.messages import WireMessage

MemoryMessage: TypeAlias = OfferMemory | MemoryAnswer
_REASON: Final = 300


class Lane:
    """The slots of the two processes of a connection.

    Args:
        send: sends a message over the connection.
        later: called before the clock waits.
        note: called with the reason if blocks are sent over the network although the other process
            is on this machine.

    Attributes:
        is_ready: True if blocks can be sent in slots.
    """

    def __init__(
        self, send: Callable[[WireMessage], None], later: Later, note: Callable[[str], None]
    ) -> None:
        self._send, self._later, self._note = send, later, note
        self._own: OwnSlots | None = None
        self._is_answered = False  # slots offered by the peer
        self._theirs: PeerSlots | None = None
        self._used: set[int] = set()  # slots of the peer whose blocks this process uses
        self.is_ready = self._is_closed = False

    def offer(self, own: OwnSlots | None) -> None:
        """Offer slots of this process to the peer, once; None: there are none."""
        if own is not None and self._own is None and not self._is_closed:
            self._own = own
            self._send(own.offer)

    # -- to the peer -----------------------------------------------------------------------

    def place(self, message: WireMessage) -> int | None:
        """Return the slot with a message's block when it is sent; None: there is none.

        Call this only if `is_ready`.
        """
        block = getattr(message, message.block_field, None)
        if isinstance(message, Probe) or not isinstance(block, torch.Tensor | Pieces):
            return None
        assert self._own is not None
        return self._own.place(block, self)

    # -- from the peer ---------------------------------------------------------------------

    def take(self, message: MemoryMessage) -> None:
        """Handle a message. Raises WireError if it must not be sent now."""
        if self._is_closed:
            return
        if isinstance(message, OfferMemory):
            self._take_offer(message)
        elif self._own is None:
            raise WireError("it answers an offer of memory that was not made")
        elif message.slot is not None:
            self._own.freed(message.slot, self)
        elif self._is_answered:
            raise WireError("it answers an offer of memory again")
        else:
            self._is_answered, self.is_ready = True, message.has
            if message.reason and not message.has:
                self._note(
                    "blocks for processes that cannot get memory of this one go over the network "
                    f"({message.reason})"
                )

    def _take_offer(self, offer: OfferMemory) -> None:
        if self._theirs is not None or not offer.nbytes or not offer.slots:
            raise WireError("it offers memory again, or none")
        # no note if the peer is on another machine
        if not is_available() or offer.boot != boot_id():
            self._send(MemoryAnswer(has=False))
            return
        try:
            self._theirs = PeerSlots(offer)
        except OSError as error:
            reason = str(error.strerror or error)[:_REASON]
            self._send(MemoryAnswer(has=False, reason=reason))
        else:
            self._send(MemoryAnswer(has=True))

    def block(
        self, slot: int, elements: int, dtype: torch.dtype, is_finite: IsFinite | None
    ) -> Pieces:
        """Return the block in a slot of the peer.

        Args:
            is_finite: tests the block; None: it is not tested.

        Raises:
            WireError: if there is none, or if it does not fit.
        """
        if self._theirs is None or slot in self._used:
            raise WireError(f"its block is in slot {slot}, which is not here or in use")
        gone = partial(self._later.append, partial(self._free, slot))
        tensor = self._theirs.block(slot, elements, dtype, gone)
        self._used.add(slot)
        parts = torch.split(tensor, PIECE_BYTES // dtype.itemsize)
        finite = None if is_finite is None else all(map(is_finite, parts))
        return Pieces(parts, finite, is_shared=not self._theirs.is_read)

    def _free(self, slot: int) -> None:
        self._used.discard(slot)
        if not self._is_closed:
            self._send(MemoryAnswer(has=True, slot=slot))

    # -- the end ---------------------------------------------------------------------------

    def close(self, *, hears: bool = False) -> None:
        """Note that the connection has ended. hears: earlier messages are still to be read."""
        self._is_closed, self.is_ready = True, False
        if self._own is not None:
            self._own.leave(self)
        if not hears:
            self._theirs = None
