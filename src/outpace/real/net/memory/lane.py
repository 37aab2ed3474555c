"""Blocks in shared memory on one connection, in both directions.

The connection itself carries the messages, as it does without. So their order, their generation
and their serial numbers are checked as always. What the messages mean:

1. The first large block goes over the network; its sender offers a slot besides (`OfferSlot`).
2. The receiver gets the slot (`passing`) and says so (`HasSlot`), or why it cannot (`LacksSlot`).
3. From then on a block is copied into a free slot, and the header of its message names the slot.
4. The receiver says when it needs the block no more (`FreeSlot`).

Blocks of probes always go over the network: a probe measures it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import torch

from outpace.blocks.block import Block, Pieces
from outpace.errors import ProtocolError
from outpace.real.net.block_frames import PIECE_BYTES, IsFinite
from outpace.real.net.memory.passing import Asking
from outpace.real.net.memory.pool import Pool
from outpace.real.net.memory.segments import GotSlot
from outpace.real.net.memory_messages import DropSlot, FreeSlot, HasSlot, LacksSlot, OfferSlot
from outpace.real.net.probe_messages import Probe, ProbeAnswer
from outpace.sync.messages import WireMessage

MemoryMessage: TypeAlias = OfferSlot | HasSlot | LacksSlot | FreeSlot | DropSlot
_MOST: Final = 64  # slots that a peer may offer
_REASON: Final = 300


class Lane:
    """The slots that the two processes of a connection share.

    Args:
        pool: the slots of this process.
        is_read: the blocks of this process may go to several peers, which only read them.
        send: sends a message over the connection.
    """

    def __init__(self, pool: Pool, send: Callable[[WireMessage], None], *, is_read: bool) -> None:
        self.is_read = is_read
        self.has: set[int] = set()  # slots of this process that the peer has
        self._pool, self._send = pool, send
        self._offered: set[int] = set()
        self._got: dict[int, GotSlot] = {}
        self._asking: dict[int, Asking] = {}
        self._is_refused = False  # the peer cannot have slots
        self._is_closed = False

    # -- to the peer -----------------------------------------------------------------------

    def place(self, message: WireMessage, block: Block | None) -> int | None:
        """Return the slot in which a message's block lies when it is sent; None: in none."""
        if isinstance(message, Probe | ProbeAnswer):
            return None
        if not isinstance(block, torch.Tensor | Pieces) or self._is_refused or self._is_closed:
            return None
        if block.nbytes < self._pool.least_bytes:
            return None
        self._pool.join(self)
        number = self._pool.place(block, self)
        if number is None or number in self.has:
            return number
        if number not in self._offered:
            self._offered.add(number)
            self._send(self._pool.offer(number))
        return None

    def tell_free(self, number: int) -> None:
        """The block that came in a slot of the peer is not used any more."""
        if not self._is_closed and number in self._got:
            self._send(FreeSlot(number))

    def dropped(self, number: int) -> None:
        """No block of this process comes in this slot any more."""
        if number in self._offered:
            self._offered.discard(number)
            self.has.discard(number)
            self._send(DropSlot(number))

    # -- from the peer ---------------------------------------------------------------------

    def take(self, message: MemoryMessage) -> None:
        """Handle a message. Raises ProtocolError if it must not come now."""
        number = message.slot
        match message:
            case OfferSlot():
                self._ask(message)
            case HasSlot():
                if number in self._offered:
                    self.has.add(number)
            case LacksSlot():
                self._is_refused = True
                if message.reason:
                    self._pool.note(
                        "blocks for processes that cannot get memory of this one go over the "
                        f"network ({message.reason})"
                    )
            case FreeSlot():
                self._pool.done(number, self)
            case DropSlot():
                self._got.pop(number, None)

    def _ask(self, offer: OfferSlot) -> None:
        number = offer.slot
        if number in self._got or number in self._asking or len(self._got) >= _MOST:
            raise ProtocolError("it offers a slot again, or too many")
        if self._pool.is_off:
            self._send(LacksSlot(number, ""))
            return
        self._pool.join(self)
        asking = Asking(self._pool.clock, offer.address, offer.token, partial(self._has_got, offer))
        if asking.is_open:
            self._asking[number] = asking

    def _has_got(self, offer: OfferSlot, found: int | OSError) -> None:
        self._asking.pop(offer.slot, None)
        if isinstance(found, ConnectionRefusedError):
            self._lacks(offer.slot, "another machine or container")
            return
        if isinstance(found, OSError):
            self._lacks(offer.slot, found.strerror or str(found))
            return
        try:
            slot = GotSlot(found, offer.nbytes)
        except (ProtocolError, OSError) as error:
            self._lacks(offer.slot, str(error))
            return
        self._got[offer.slot] = slot
        self._send(HasSlot(offer.slot))

    def _lacks(self, number: int, reason: str) -> None:
        self._send(LacksSlot(number, reason[:_REASON]))

    def block(
        self, number: int, elements: int, dtype: torch.dtype, is_finite: IsFinite | None
    ) -> Pieces:
        """Return the block in a slot of the peer.

        Args:
            is_finite: tests the block, if given.

        Raises:
            ProtocolError: this process does not have the slot, or the block does not fit.
        """
        slot = self._got.get(number)
        if slot is None:
            raise ProtocolError(f"its block is in slot {number}, which is not here")
        free = partial(self._pool.to_free.append, (self, number))
        try:
            tensor = slot.lend(elements, dtype, free)
        except OSError as error:
            raise ProtocolError(f"slot {number} cannot be mapped: {error.strerror}") from None
        parts = torch.split(tensor, PIECE_BYTES // dtype.itemsize)
        return Pieces(parts, None if is_finite is None else all(map(is_finite, parts)))

    def close(self, *, hears: bool = False) -> None:
        """The connection has ended. hears: messages that came before are still to be read."""
        if not self._is_closed:
            self._is_closed = True
            for asking in self._asking.values():
                asking.close()
            self._asking.clear()
            self._pool.leave(self)
        if not hears:
            self._got.clear()
