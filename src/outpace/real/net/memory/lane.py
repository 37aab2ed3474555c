"""Blocks in shared memory on one connection, in both directions.

The connection itself carries the messages, as it does without. So their order, their generation
and their serial numbers are checked as always. What the messages mean:

1. The first two large blocks go over the network. With the second one of a size, its sender offers
   a slot (`OfferSlot`).
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
from outpace.real.net.memory.limits import why_no_files
from outpace.real.net.memory.passing import Asking, is_offer
from outpace.real.net.memory.pool import MOST_SLOTS, Pool
from outpace.real.net.memory.segments import GotSlot
from outpace.real.net.memory_messages import DropSlot, FreeSlot, HasSlot, LacksSlot, OfferSlot
from outpace.real.net.probe_messages import Probe, ProbeAnswer
from outpace.support.machine import boot_id
from outpace.sync.messages import WireMessage

MemoryMessage: TypeAlias = OfferSlot | HasSlot | LacksSlot | FreeSlot | DropSlot
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
        self._sizes: dict[int, int] = {}  # of blocks that were sent -> when
        self._pool, self._send = pool, send
        self._offered: dict[int, str] = {}  # slots of this process that were offered -> token
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
            offer = self._pool.offer(number, self)
            self._offered[number] = offer.token
            self._send(offer)
        return None

    def memory(self, elements: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Return a free slot for a block that will be sent to the peer; None: there is none."""
        return self._pool.empty(elements, dtype, self) if self.has else None

    def has_sent(self, size: int, now_ns: int, within_ns: int) -> bool:
        """Note a block of this size that is sent now; True if there was one in this time before.

        A slot for a single block would not be there in time, and would never be used.
        """
        recent = {known: at for known, at in self._sizes.items() if now_ns - at <= within_ns}
        self._sizes = recent | {size: now_ns}
        return size in recent

    def tell_free(self, number: int) -> None:
        """The block that came in a slot of the peer is not used any more."""
        if not self._is_closed and number in self._got:
            self._send(FreeSlot(number))

    def dropped(self, number: int) -> None:
        """No block of this process comes in this slot any more."""
        if number in self._offered:
            del self._offered[number]
            self.has.discard(number)
            self._send(DropSlot(number))

    # -- from the peer ---------------------------------------------------------------------

    def take(self, message: MemoryMessage) -> None:
        """Handle a message. Raises ProtocolError if it must not come now."""
        number = message.slot
        if self._is_closed and not isinstance(message, DropSlot):
            return
        match message:
            case OfferSlot():
                self._ask(message)
            case HasSlot() | LacksSlot():
                if number in self._offered:  # else it was dropped since
                    self._answered(message)
            case FreeSlot():
                self._pool.done(number, self)
            case DropSlot():
                self._got.pop(number, None)
                asking = self._asking.pop(number, None)
                if asking is not None:
                    asking.close()

    def _answered(self, answer: HasSlot | LacksSlot) -> None:
        number = answer.slot
        self._pool.answered(number, self, self._offered[number])
        if isinstance(answer, HasSlot):
            self.has.add(number)
            return
        self.has.discard(number)
        self._is_refused = self._is_refused or answer.is_final
        if answer.reason:
            self._pool.note(
                "blocks for processes that cannot get memory of this one go over the network "
                f"({answer.reason})"
            )

    def _ask(self, offer: OfferSlot) -> None:
        number, has = offer.slot, len(self._got) + len(self._asking)
        if number in self._got or number in self._asking or has >= MOST_SLOTS:
            raise ProtocolError("it offers a slot again, or too many")
        if not is_offer(offer.address, offer.token):
            raise ProtocolError("it offers a slot where no process has one")
        if self._pool.is_off or offer.boot != boot_id():  # another machine is no news
            self._send(LacksSlot(number, "", is_final=True))
            return
        if reason := why_no_files():
            self._lacks(number, reason)
            return
        self._pool.join(self)
        asking = self._pool.ask(offer, partial(self._has_got, offer))
        if asking.is_open:
            self._asking[number] = asking

    def _has_got(self, offer: OfferSlot, found: int | OSError) -> None:
        self._asking.pop(offer.slot, None)
        if isinstance(found, ConnectionRefusedError):
            self._lacks(offer.slot, "another container or network namespace", is_final=True)
            return
        if isinstance(found, OSError):
            is_final = isinstance(found, PermissionError)
            self._lacks(offer.slot, found.strerror or str(found), is_final=is_final)
            return
        try:
            slot = GotSlot(found, offer.nbytes)
        except (ProtocolError, OSError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._lacks(offer.slot, reason)
            return
        self._got[offer.slot] = slot
        self._send(HasSlot(offer.slot))

    def _lacks(self, number: int, reason: str, *, is_final: bool = False) -> None:
        self._send(LacksSlot(number, reason[:_REASON], is_final))

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
            raise ProtocolError(f"slot {number} cannot be read: {error.strerror}") from None
        parts = torch.split(tensor, PIECE_BYTES // dtype.itemsize)
        finite = None if is_finite is None else all(map(is_finite, parts))
        return Pieces(parts, finite, is_shared=slot.is_shared)

    def close(self, *, hears: bool = False) -> None:
        """The connection has ended. hears: messages that came before are still to be read."""
        if not self._is_closed:
            self._is_closed = True
            for asking in self._asking.values():
                asking.close()
            self._asking.clear()
            for token in self._offered.values():
                self._pool.withdraw(token)
            self._offered.clear()
            self._pool.leave(self)
        if not hears:
            self._got.clear()
