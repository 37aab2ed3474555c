"""Wire messages of a new division of the parameters (see `sync.moving`)."""

from __future__ import annotations

from typing import TypeAlias

from outpace.blocks.division import Division, Range
from outpace.errors import ProtocolError
from outpace.real.net.checkpoint_messages import Encoded
from outpace.real.net.messages import BlockHead, Name, Text, WirePart
from outpace.sync.messages import Count, Index, WireMessage

WireRange: TypeAlias = tuple[Count, Count]


class WireDivision(WirePart):
    """A `Division`. ranges: of each server in `servers`."""

    number: Count
    servers: list[Index]
    ranges: list[list[WireRange]]

    def division(self) -> Division:
        """Return the division. Raises ProtocolError if it is none."""
        found = Division(
            self.number,
            {
                server: tuple(Range(*each) for each in ranges)
                for server, ranges in zip(self.servers, self.ranges, strict=False)
            },
        )
        if len(found.parts) != len(self.ranges) or found.problem():
            raise ProtocolError(f"division {self.number}: {found.problem()}")
        return found


class Divide(WireMessage, tag="divide"):
    """The coordinator to servers and workers: the parameters are divided anew.

    It also names the servers that have left, as long as they may hand something over. Servers
    answer with DivisionKnown, and later with DivisionBegun. Workers hear of it when all servers
    know of it.

    endpoints, keys, generations: of all these servers, which are `servers`; keys are empty if
    insecure. workers: generations of the workers whose processes have taken the place of others.
    """

    division: WireDivision
    servers: list[Index]
    endpoints: list[Text]
    keys: list[Text]
    generations: list[Count]
    workers: list[tuple[Index, Count]]


class DivisionKnown(WireMessage, tag="division known"):
    """A server to the coordinator: it knows of the division.

    The coordinator to a server: all servers know of it, so that pieces can be handed over.
    """

    number: Count


class DivisionBegun(WireMessage, tag="division begun"):
    """A server to the coordinator: it has its part of the division, or has none any more.

    moved: bytes of parameters that it has handed over to others; state: bytes in all, with what the
    optimizer remembers and with unfinished sums.
    """

    number: Count
    moved: Count
    state: Count


class HandOver(WireMessage, tag="hand over"):
    """A server to another one: what belongs to some ranges of its part (`sync.messages.Moved`).

    record: a `ShardRecord` as MessagePack. tensors: name, shape and dtype of those in the block,
    one after another.
    """

    number: Count
    ranges: list[WireRange]
    record: Encoded
    tensors: list[tuple[Text, list[Count], Name]]
    block: BlockHead


def wire_division(division: Division) -> WireDivision:
    """Return a division as it travels."""
    servers = division.servers
    ranges = [[(piece.low, piece.high) for piece in division.parts[server]] for server in servers]
    return WireDivision(division.number, servers, ranges)
