"""Wire messages for what workers do together: all-reduces, meetings, averages of two, the store."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from outpace.real.net.messages import Text
from outpace.sync.messages import Count, Index, WireMessage

Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
StoreOperation: TypeAlias = Literal["set", "get", "add", "delete"]
StoreValue: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
StoreKeys: TypeAlias = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=1024)
]


class TakePart(WireMessage, tag="part"):
    """A worker takes part in what workers do together, or asks for it.

    what: `all-reduce`: the one with this number. `meeting`: the next one. `pair`: the worker asks
    for a partner to average with while it computes the iteration `number`. `averaged`: the worker
    has ended its part in the average with this number, or has given it up.
    last: of a meeting: the others wait for this worker in no later one.
    """

    what: Literal["all-reduce", "meeting", "pair", "averaged"]
    number: Count = 0
    last: bool = False


class GroupBroken(WireMessage, tag="broken"):
    """A worker cannot continue in the group of this generation.

    average: of two workers, in which the group was used; None: it was used in none.
    """

    generation: Count
    reason: Text
    average: Count | None = None


class Regroup(WireMessage, tag="regroup"):
    """The coordinator to workers: form a new group of these members."""

    generation: Count
    members: list[Index]


class EndMeeting(WireMessage, tag="all here"):
    """The coordinator to the workers that wait: all have come."""

    ended: Count  # the time of the run


class AskStore(WireMessage, tag="ask"):
    """A worker to the store through which workers form groups (`averaging/hosted_store`).

    number: of this request; the StoreAnswer repeats it.
    """

    number: Count
    operation: StoreOperation
    keys: StoreKeys  # exactly one, except of `get`
    value: StoreValue = b""  # that `set` stores
    amount: Amount = 0  # that `add` adds


class StoreAnswer(WireMessage, tag="answer"):
    """The answer of the store. number: of the request that it answers."""

    number: Count
    value: StoreValue = b""  # of the first key that has one
    amount: Amount = 0  # the sum of `add`, or how many of the keys are there


# -- averages of two workers (gossip) ------------------------------------------------------


class StartAverage(WireMessage, tag="meet"):
    """The coordinator to both workers of a pair: average now."""

    number: Count
    seeker: Index  # the worker that asked for a partner
    partner: Index
    began: Count  # when both were free: the time of the run


class CancelAverage(WireMessage, tag="parted"):
    """The coordinator to a worker: the partner is gone; give this average up unless it ended.

    number: of the average; None: it has not begun, and no other worker is left.
    """

    number: Count | None
