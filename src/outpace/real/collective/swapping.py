"""The members of a group map each other's buffers, or none of them does.

Each member has a slot. It puts a token for each other member in the store of the run, over its
authenticated connection. The others fetch the slot with it (`real.net.memory.passing`). Gloo says
when all tokens are there, and whether all members have all slots. So a member that is lost
meanwhile makes this fail as it makes an all-reduce fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
import torch

from outpace.errors import ProtocolError
from outpace.real.collective.shared_buffers import SharedBuffers
from outpace.real.net.clock import RealClock
from outpace.real.net.memory.limits import why_no_files
from outpace.real.net.memory.passing import Asking, Giver, is_offer
from outpace.real.net.memory.segments import GotSlot
from outpace.support.machine import boot_id
from outpace.support.units import nanoseconds

_FETCH_S: Final = 10.0  # limit: the other member may stand still
_LOOK_NS: Final = 1_000_000  # between two looks whether all members have said what they have
_LACKS: Final = 1  # a member lacks memory of others, which is no news
_SAYS: Final = 2  # it says why


class _Offer(msgspec.Struct):
    """Where the other members fetch a slot.

    address: where to show the token; empty: there is no slot. tokens: by rank. boot: id of the
    machine's boot.
    """

    boot: str
    nbytes: int = 0
    address: str = ""
    tokens: list[str] = []


class NotShared(Exception):
    """The members do not have each other's memory.

    The text says why; empty if another member says it, or if it is no news.
    """


def swapped(
    mine: SharedBuffers, group: Any, store: Any, name: str, rank: int, size: int
) -> list[Sequence[torch.Tensor]]:
    """Return the buffers of all members, by rank. All members must call it together.

    Args:
        group: a ProcessGroupGloo. rank, size: of this member, and of the group.
        store: of the group.
        name: of the buffers, unique in the group.

    Raises:
        NotShared: in all members: one of them does not have all buffers.
        RuntimeError: a member cannot be reached.
    """
    clock = RealClock()
    giver, why = _giver(clock, mine)
    lacks = giver is None
    try:
        others = [other for other in range(size) if other != rank]
        store.set(_key(name, rank), msgspec.json.encode(_offer(mine, giver, rank, size)))
        meet(group)
        found: dict[int, Sequence[torch.Tensor]] = {rank: mine.tensors}
        offers = [(other, store.get(_key(name, other))) for other in others]
        try:
            for other, slot in _fetched(clock, offers, rank, mine.nbytes).items():
                found[other] = mine.views(slot.lend(mine.nbytes, torch.uint8, _nothing))
        except NotShared:
            lacks = True
        except (ProtocolError, OSError) as error:
            lacks = True
            why = why or (error.strerror if isinstance(error, OSError) else None) or str(error)
        lacking = torch.zeros(size, dtype=torch.int32)
        lacking[rank] = (_SAYS if why else _LACKS) if lacks else 0
        verdict = group.allreduce([lacking])
        while not verdict.is_completed():  # others may still fetch the slot of this member
            clock(clock.now + _LOOK_NS)
        verdict.wait()
    finally:
        if giver is not None:
            giver.close()
    store.delete_key(_key(name, rank))
    if lacking.any():
        speaker = int(lacking.argmax())  # the first of them
        raise NotShared(why if speaker == rank else "")
    return [found[member] for member in range(size)]


def meet(group: Any, said: bool = False) -> int:
    """Wait until all members have come here; return how many of them said yes.

    What they have written into shared memory before, all of them can read afterwards.

    Raises:
        RuntimeError: a member cannot be reached.
    """
    count = torch.tensor([int(said)], dtype=torch.int32)
    group.allreduce([count]).wait()
    return int(count)


def _giver(clock: RealClock, mine: SharedBuffers) -> tuple[Giver | None, str]:
    """Return what gives these buffers to others, or None and why there is none."""
    if mine.slot is None:
        return None, mine.why_not
    try:
        return Giver(clock), ""
    except OSError as error:
        return None, error.strerror or str(error)


def _offer(mine: SharedBuffers, giver: Giver | None, rank: int, size: int) -> _Offer:
    if giver is None:
        return _Offer(boot_id())
    assert mine.slot is not None
    descriptor = mine.slot.descriptor
    tokens = ["" if other == rank else giver.token_for(descriptor) for other in range(size)]
    return _Offer(boot_id(), mine.nbytes, giver.address, tokens)


def _fetched(
    clock: RealClock, offers: Sequence[tuple[int, bytes]], rank: int, nbytes: int
) -> dict[int, GotSlot]:
    """Return the slots of other members, by rank.

    Raises:
        ProtocolError, OSError: one cannot be had.
        NotShared: one is on another machine, or there is none.
    """
    slots: dict[int, GotSlot] = {}
    errors: list[ProtocolError | OSError] = []

    def take(other: int, got: int | OSError) -> None:
        try:
            slots[other] = _slot(got, nbytes)
        except (ProtocolError, OSError) as error:
            errors.append(error)

    asked: list[Asking] = []
    try:
        for other, data in offers:
            offer = _read(data, rank, nbytes)
            if reason := why_no_files():
                raise OSError(reason)
            token = offer.tokens[rank]
            asked.append(Asking(clock, offer.address, token, partial(take, other)))
        due = clock.now + nanoseconds(_FETCH_S)
        while any(asking.is_open for asking in asked) and clock.now < due:
            clock(due)
    finally:
        for asking in asked:
            asking.give_up()
    if errors:
        raise errors[0]
    return slots


def _slot(got: int | OSError, nbytes: int) -> GotSlot:
    """Return the slot with this descriptor. Raises ProtocolError or OSError if it is of no use."""
    if isinstance(got, ConnectionRefusedError):
        raise OSError("another container or network namespace")
    if isinstance(got, OSError):
        raise got
    slot = GotSlot(got, nbytes)
    if not slot.is_shared:
        raise ProtocolError("a worker offers memory that only it can write to")
    return slot


def _read(data: bytes, rank: int, nbytes: int) -> _Offer:
    """Return an offer of a slot of so many bytes. Raises ProtocolError or NotShared."""
    try:
        offer = msgspec.json.decode(data, type=_Offer)
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise ProtocolError("a worker offers its memory in an unknown form") from None
    if offer.boot != boot_id() or not offer.address:
        raise NotShared
    if offer.nbytes != nbytes:
        raise ProtocolError(f"a worker offers {offer.nbytes} bytes, not {nbytes}")
    if rank >= len(offer.tokens) or not is_offer(offer.address, offer.tokens[rank]):
        raise ProtocolError("a worker offers memory where no process has any")
    return offer


def _nothing() -> None:
    """The buffers need no notice when they are not used any more."""


def _key(name: str, rank: int) -> str:
    return f"memory {name} of {rank}"
