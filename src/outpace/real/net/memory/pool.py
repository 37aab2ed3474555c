"""The slots of one process, for the blocks that it sends to others of its machine.

A slot is used again when all receivers have said that they do not need its block any more, and no
tensor of this process lies in it. No process waits for a slot: if none is free, the block goes over
the network.
"""

from __future__ import annotations

import errno
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

import torch

from outpace.blocks.block import Pieces
from outpace.real.net.clock import RealClock
from outpace.real.net.memory.limits import why_no_files, why_no_memory
from outpace.real.net.memory.passing import Asking, Giver
from outpace.real.net.memory.segments import OwnSlot, is_available
from outpace.real.net.memory_messages import OfferSlot
from outpace.real.net.sparse_log import Log, SparseLog
from outpace.real.net.transport import Session
from outpace.support.machine import boot_id

if TYPE_CHECKING:
    from outpace.real.net.memory.lane import Lane

LEAST_BYTES: Final = 1 << 17  # smaller blocks go over the network, which is faster for them
_PAGE: Final = 4096
_GIVEN_EACH: Final = 3  # slots for the blocks that a connection gives
_READ_MORE: Final = 3  # slots that are read, beside one for each connection
MOST_SLOTS: Final = 64  # slots of one process that another one has, or asks for

_KEEP_NS: Final = 60_000_000_000  # that a slot is kept without use
_LOOKS_NS: Final = 1_000_000_000
_ASKS_NS: Final = 10_000_000_000  # for a slot of another process
# Errors that may be over later.
_SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ENOBUFS)


@dataclass(eq=False)
class _Held:
    """A slot. owner: the connection that its blocks are sent on; None: several, which read it."""

    slot: OwnSlot
    owner: Lane | None
    # For each connection: how many messages with this block its peer still needs.
    readers: Counter[Lane] = field(default_factory=Counter)
    asked: set[Lane] = field(default_factory=set)  # connections whose peers have not answered yet
    lent: int = 0  # tensors of this process that lie in it
    content: weakref.ref[torch.Tensor | Pieces] | None = None  # the block that it is a copy of
    used_ns: int = 0  # when it was last used

    @property
    def is_free(self) -> bool:
        return not self.readers and not self.lent


class Pool:
    """The slots of this process.

    Args:
        note: called with why blocks go over the network although the other process is on this
            machine.
        least_bytes: of a block that goes through memory.
    """

    def __init__(
        self, clock: RealClock, note: Callable[[str], None], least_bytes: int = LEAST_BYTES
    ) -> None:
        self.clock, self.note, self.least_bytes = clock, note, least_bytes
        self.lanes: set[Lane] = set()
        self._held: dict[int, _Held] = {}
        self._giver: Giver | None = None
        self._next = 0
        self._looked_ns = 0  # for slots that are not used any more
        self._is_off = self._is_closed = False
        self._asking: deque[tuple[int, Asking]] = deque()  # with the time until when they may
        # Appended to in any thread.
        self._unlent: deque[_Held] = deque()
        self.to_free: deque[tuple[Lane, int]] = deque()
        clock.before_waits(self._settle)

    @property
    def is_off(self) -> bool:
        """True if this process can have no more slots."""
        return self._is_off or not is_available()

    # -- blocks of this process that lie in slots ----------------------------------------------

    def empty(
        self, elements: int, dtype: torch.dtype, lane: Lane | None = None
    ) -> torch.Tensor | None:
        """Return memory for a block that will be sent; None: no slot is free.

        The slot is used again when no tensor with this memory is left.

        Args:
            lane: to its peer, which gets the block; None: to several peers, which read it.
        """
        nbytes = elements * dtype.itemsize
        readers = [each for each in self.lanes if each.is_read] if lane is None else [lane]
        if nbytes < self.least_bytes or not any(each.has for each in readers):
            return None
        self._settle()
        has = set() if lane is None else lane.has
        held = self._free(nbytes, lane, has, may_make=lane is None)
        if held is None or (lane is not None and held.slot.number not in has):
            return None
        held.lent += 1
        held.used_ns = monotonic_ns()
        held.content = None
        return held.slot.lend(elements, dtype, partial(self._unlent.append, held))

    def place(self, block: torch.Tensor | Pieces, lane: Lane) -> int | None:
        """Return the slot in which this block is sent to the peer of a lane; None: in no slot.

        The block is copied to the slot unless it lies there already, or the peer does not have the
        slot yet.
        """
        if block.nbytes < self.least_bytes:
            return None
        self._settle()
        may_make = lane.has_sent(_pages(block.nbytes), monotonic_ns(), _KEEP_NS)
        owner = None if lane.is_read else lane
        held = self._known(block, owner)
        if held is None:
            held = self._free(block.nbytes, owner, lane.has, may_make=may_make)
            if held is None:
                return None
            if held.slot.number in lane.has:
                view = held.slot.view(block.numel(), block.dtype)
                if isinstance(block, Pieces):
                    block.copy_to(view)
                else:
                    view.copy_(block.detach())
                held.content = weakref.ref(block) if lane.is_read else None
        if held.slot.number in lane.has:
            held.readers[lane] += 1
            held.used_ns = monotonic_ns()
        return held.slot.number

    def _known(self, block: torch.Tensor | Pieces, owner: Lane | None) -> _Held | None:
        """Return the owner's slot that has the block, or a copy of it; None: there is none."""
        for held in self._held.values():
            if held.owner is not owner:
                continue
            if held.content is not None and held.content() is block:
                return held
            if (
                held.lent
                and isinstance(block, torch.Tensor)
                and block.is_contiguous()
                and block.data_ptr() == held.slot.address
            ):
                return held
        return None

    def _free(
        self, nbytes: int, owner: Lane | None, has: set[int], *, may_make: bool = True
    ) -> _Held | None:
        """Return a free slot of this size in whole pages, if possible one that the peer has."""
        size = _pages(nbytes)
        mine = [held for held in self._held.values() if held.owner is owner]
        free = [held for held in mine if held.is_free]
        fitting = [held for held in free if held.slot.nbytes == size]
        if fitting:
            return min(fitting, key=lambda held: (held.slot.number not in has, held.slot.number))
        if not may_make:
            return None
        most = min(_READ_MORE + len(self.lanes), MOST_SLOTS) if owner is None else _GIVEN_EACH
        if len(mine) >= most:
            other = next((held for held in free if not held.asked), None)
            if other is None:
                return None
            self._drop(other)  # of another size: the blocks were divided anew
        return self._new(size, owner)

    def _new(self, size: int, owner: Lane | None) -> _Held | None:
        if self.is_off:
            return None
        if reason := why_no_memory(size) or why_no_files():
            self.note(f"blocks of {size} bytes go over the network: {reason}")
            return None
        number = self._next
        try:
            self._giver = self._giver or Giver(self.clock)
            slot = OwnSlot(number, size, is_read=owner is None)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in _SHORT:
                self.note(f"blocks of {size} bytes go over the network: {reason}")
            else:
                self.turn_off(f"this process can share no memory: {reason}")
            return None
        self._next += 1
        held = self._held[number] = _Held(slot, owner, used_ns=monotonic_ns())
        return held

    def turn_off(self, why: str) -> None:
        """Share no more memory. Slots that were given stay in use."""
        self._is_off = True
        self.note(f"blocks go over the network: {why}")

    # -- slots and the other processes -------------------------------------------------------

    def offer(self, number: int, lane: Lane) -> OfferSlot:
        """Return the offer of a slot to the peer of a lane; it stays until the peer answers."""
        assert self._giver is not None
        held = self._held[number]
        held.asked.add(lane)
        token = self._giver.token_for(held.slot.descriptor)
        return OfferSlot(number, held.slot.nbytes, self._giver.address, token, boot_id())

    def answered(self, number: int, lane: Lane, token: str) -> None:
        """The peer of a lane has the slot, or cannot get it."""
        self._held[number].asked.discard(lane)
        self.withdraw(token)

    def ask(self, offer: OfferSlot, got: Callable[[int | OSError], None]) -> Asking:
        """Ask another process for a slot; got: see `Asking`."""
        asking = Asking(self.clock, offer.address, offer.token, got)
        self._asking.append((monotonic_ns() + _ASKS_NS, asking))
        return asking

    def withdraw(self, token: str) -> None:
        """Give nothing for this token any more."""
        if self._giver is not None:
            self._giver.withdraw(token)

    def done(self, number: int, lane: Lane) -> None:
        """The peer of a lane does not need the block in a slot any more."""
        held = self._held.get(number)
        if held is not None and lane in held.readers:
            held.readers[lane] -= 1
            held.used_ns = monotonic_ns()
            if not held.readers[lane]:
                del held.readers[lane]

    def join(self, lane: Lane) -> None:
        self.lanes.add(lane)

    def leave(self, lane: Lane) -> None:
        """The peer of a lane is gone: it needs no block any more."""
        self.lanes.discard(lane)
        for held in list(self._held.values()):
            del held.readers[lane]
            held.asked.discard(lane)
            if held.owner is lane:
                self._drop(held)

    def _drop(self, held: _Held) -> None:
        number = held.slot.number
        del self._held[number]
        if self._giver is not None:
            self._giver.forget(held.slot.descriptor)
        held.slot.close()
        for lane in list(self.lanes):
            lane.dropped(number)

    def _settle(self) -> None:
        """Note which slots are not used any more, and tell the peers whose slots they are."""
        now = monotonic_ns()
        while self._unlent:
            held = self._unlent.popleft()
            held.lent, held.used_ns = held.lent - 1, now
        while self.to_free:
            lane, number = self.to_free.popleft()
            lane.tell_free(number)
        while self._asking and (self._asking[0][0] <= now or not self._asking[0][1].is_open):
            self._asking.popleft()[1].give_up()
        if now >= self._looked_ns + _LOOKS_NS:
            self._looked_ns = now
            for held in list(self._held.values()):
                if held.is_free and not held.asked and now - held.used_ns > _KEEP_NS:
                    self._drop(held)

    def close(self) -> None:
        if self._giver is not None:
            self._giver.close()
            self._giver = None
        for held in self._held.values():
            held.slot.close()
        self._held.clear()
        if not self._is_closed:
            self._is_closed = True
            self.clock.not_before_waits(self._settle)
        self._is_off = True


def pool_of(session: Session, clock: RealClock, log: Log) -> Pool | None:
    """Return the slots of a process of this session; None if its processes share no memory."""
    return Pool(clock, SparseLog(log).note) if session.shares_memory else None


def _pages(nbytes: int) -> int:
    """Return the bytes of whole pages."""
    return -(-nbytes // _PAGE) * _PAGE
