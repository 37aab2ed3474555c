"""Wire messages for all-reduces, meetings and averages of workers, and for the store."""

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
    """Tells that a worker joins an all-reduce or a meeting, or asks for a partner.

    what: `all-reduce`: the worker joins the all-reduce with this number. `meeting`: it enters the
    next meeting. `pair`: it asks for a partner to average with while it computes iteration
    `number`. `averaged`: it has ended its part in the average with this number, or has given it up.
    last: for a meeting: True if the others do not wait for this worker in later meetings.
    """

    what: Literal["all-reduce", "meeting", "pair", "averaged"]
    number: Count = 0
    last: bool = False


class GroupBroken(WireMessage, tag="broken"):
    """Tells that a worker cannot continue in the group of this generation.

    average: the average of two workers in which the group was used; None: it was used in no
    average.
    """

    generation: Count
    reason: Text
    average: Count | None = None


class Regroup(WireMessage, tag="regroup"):
    """The coordinator's order to workers to form a new group of these members."""

    generation: Count
    members: list[Index]


class EndMeeting(WireMessage, tag="all here"):
    """Tells the workers that wait in a meeting that all have entered it."""

    ended: Count  # the time of the run


class AskStore(WireMessage, tag="ask"):
    """A worker's request to the store with which workers form groups (`averaging/hosted_store`).

    number: number of this request, which the StoreAnswer repeats.
    """

    number: Count
    operation: StoreOperation
    keys: StoreKeys  # exactly one key, except for `get`
    value: StoreValue = b""  # the value that `set` stores
    amount: Amount = 0  # the number that `add` adds


class StoreAnswer(WireMessage, tag="answer"):
    """The answer of the store. number: number of the request."""

    number: Count
    value: StoreValue = b""  # value of the first key that has one
    amount: Amount = 0  # the sum of `add`, or how many of the keys exist


# -- averages of two workers (gossip) ------------------------------------------------------


class StartAverage(WireMessage, tag="meet"):
    """The coordinator's order to both workers of a pair to average now."""

    number: Count
    seeker: Index  # the worker that asked for a partner
    partner: Index
    began: Count  # time of the run when both were free


class CancelAverage(WireMessage, tag="parted"):
    """Tells a worker to give up an average, unless it has ended, because the partner is lost.

    number: number of the average; None: it has not begun, and no other worker is left.
    """

    number: Count | None
