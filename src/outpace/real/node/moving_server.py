"""The part of a server's process in new divisions of the parameters (`sync.moving`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import torch

from outpace.blocks.block import Block, whole
from outpace.blocks.division import Division, Range, Ranges, size_of
from outpace.blocks.packing import DTYPES, dtype_name, packed, unpacked
from outpace.real.net.block_frames import head_of
from outpace.real.net.inbox import Inbox
from outpace.real.net.messages import PHANTOM
from outpace.real.net.moving_messages import (
    Divide,
    DivisionBegun,
    DivisionKnown,
    HandOver,
)
from outpace.real.net.transport import FIRST, Caller, Handlers, Listener, Transport
from outpace.real.node.script_parts import ScriptParts
from outpace.record.checkpoints.shards import (
    ScriptOptimizer,
    ShardRecord,
    shard_file,
    shard_of,
)
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import Divided, Moved, WireMessage, server_name, worker_name
from outpace.sync.moving.server import Moves
from outpace.sync.shard import Shard

_MOST_STATES: Final = 64  # times the bytes of the parameters that a piece may have
_LEAST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Around:
    """What a server's process has for its moves."""

    index: int
    transport: Transport
    listener: Listener
    inbox: Inbox
    tell: Callable[[WireMessage], None]  # the coordinator


class ServerMoves:
    """Announces new divisions to the server's program, and carries the pieces.

    Args:
        begin: makes a shard from its state, for this division and number of workers, and puts it in
            the place of the present one; see `Moves`.
        layers: number of elements of each tensor of the model.
        script: the optimizer of a script; None: it is that of the configuration.
    """

    def __init__(
        self,
        around: Around,
        division: Division,
        shard: Shard | None,
        dtype: str,
        begin: Callable[[Division, ShardState, int | None], Shard],
        layers: Sequence[int] = (),
        script: ScriptParts | None = None,
    ) -> None:
        self._around, self._dtype, self._script = around, dtype, script
        by_tensor = () if script is None else layers
        index = around.index
        self.moves = Moves(index, division, shard, begin, self._hand, self._begun, by_tensor)
        self._sizes: dict[str, int] = {}  # elements of the blocks of workers that have gone over
        self._next: Division | None = None  # the last division that was announced
        # Endpoint, key and generation of the other servers.
        self._peers: dict[str, tuple[str, str, int]] = {}
        self._callers: dict[str, Caller] = {}
        self._may_hand, self._waiting = False, list[tuple[int, Moved]]()
        self._moved = self._state_bytes = 0

    def order(self, message: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is another message."""
        if isinstance(message, Divide):
            self._announce(message)
        elif isinstance(message, DivisionKnown):
            self._may_hand = True
            waiting, self._waiting = self._waiting, []
            for server, moved in waiting:
                self._hand(server, moved)
        else:
            return False
        return True

    def _announce(self, message: Divide) -> None:
        around, after = self._around, message.division.division()
        keys = message.keys or [""] * len(message.servers)
        known = zip(message.servers, message.endpoints, keys, message.generations, strict=True)
        for server, endpoint, key, generation in known:
            name = server_name(server)
            if server == around.index:
                continue
            around.listener.admit(name, key)
            if generation > self._peers.get(name, ("", "", FIRST))[2]:
                around.listener.replace(name, generation)
            self._peers[name] = endpoint, key, generation
        if around.index not in self.moves.division.parts:  # it joins: the others know already
            for worker, generation in message.workers:
                around.listener.replace(worker_name(worker), generation)
        self._next, self._may_hand = after, False
        self._sizes.clear()  # all workers have gone over to the present division, or left
        self._moved = self._state_bytes = 0
        around.inbox.put(Divided(after))
        around.tell(DivisionKnown(after.number))

    def part(self, number: int) -> Ranges:
        """Return this server's part in a division, if that is the present or the next one."""
        for division in (self._next, self.moves.division):
            if division is not None and division.number == number:
                return division.parts.get(self._around.index, ())
        return ()

    # -- messages of workers and servers -----------------------------------------------

    def block_of(self, peer: str, present: tuple[str, int] | None) -> tuple[str, int] | None:
        """Return dtype and elements of a worker's next gradient.

        present: of the server's part; None: it has none yet, and workers send for the next one.
        """
        if peer not in self._sizes and (present is not None or self._next is None):
            return present
        if present is None:
            assert self._next is not None
            return self.block(size_of(self._next.parts.get(self._around.index, ())))
        return self.block(self._sizes[peer])

    def went_over(self, peer: str) -> None:
        """A worker has sent its GoOver."""
        if self._next is not None:
            self._sizes[peer] = size_of(self._next.parts.get(self._around.index, ()))

    def expected(self, peer: str, message: HandOver) -> tuple[str, int] | None:
        """Return which block may come with a piece."""
        if peer not in self._peers:
            return None
        most = sum(high - low for low, high in message.ranges) * 8 * _MOST_STATES + _LEAST_BYTES
        elements = message.block.elements
        return ("uint8", elements) if elements <= most else None

    def take(self, peer: str, message: HandOver, block: Block) -> None:
        """Give a piece to the program, or refuse its sender if it cannot be read."""
        try:
            moved, script = _read(message, block)
            if self._script is not None and script is not None:
                self._script.learn(script.name, script.settings, script.groups)
        except (ValueError, KeyError, msgspec.DecodeError) as error:
            self._around.listener.refuse(peer, f"its piece of the parameters: {error}")
        else:
            self._around.inbox.put(moved)

    # -- what the program does -----------------------------------------------------------

    def _hand(self, server: int, moved: Moved) -> None:
        if not self._may_hand:  # the other server may not know of this one yet
            self._waiting.append((server, moved))
            return
        script = None if self._script is None else self._script.record(tuple(moved.ranges))
        record, tensors = shard_file(moved.state, script)
        layout = [
            (name, list(tensor.shape), dtype_name(tensor.dtype)) for name, tensor in tensors.items()
        ]
        data = packed(list(tensors.values()))
        self._moved += moved.state.parameters.nbytes
        self._state_bytes += data.nbytes
        ranges = [(piece.low, piece.high) for piece in moved.ranges]
        encoded = msgspec.msgpack.encode(record)
        self._caller(server_name(server)).send(
            HandOver(moved.number, ranges, encoded, layout, head_of(data)), data
        )

    def _caller(self, name: str) -> Caller:
        if name not in self._callers:
            endpoint, key, generation = self._peers[name]
            # A server that is lost is the concern of the coordinator.
            handlers = Handlers(lambda *_: None, lambda *_: None, lambda _: None)
            self._callers[name] = self._around.transport.call(
                name, endpoint, key, handlers, generation
            )
        return self._callers[name]

    def _begun(self, division: Division) -> None:
        self._around.tell(DivisionBegun(division.number, self._moved, self._state_bytes))

    def block(self, part_elements: int) -> tuple[str, int]:
        """Return dtype and elements on the wire of a block with so many parameters."""
        return self._dtype, part_elements * (4 if self._dtype == PHANTOM else 1)


def _read(message: HandOver, block: Block) -> tuple[Moved, ScriptOptimizer | None]:
    """Return the piece in a message, and the optimizer of a script.

    Raises ValueError, KeyError or DecodeError if it has none.
    """
    data, size = whole(block), 0
    if not isinstance(data, torch.Tensor):
        raise ValueError("it has no values")
    for _, shape, dtype in message.tensors:
        if dtype not in DTYPES:
            raise ValueError(f"tensors of {dtype!r} are not exchanged")
        size += math.prod(shape) * DTYPES[dtype].itemsize
    if size != len(data):
        raise ValueError(f"{len(data)} bytes are not the {size} of its tensors")
    record = msgspec.msgpack.decode(message.record, type=ShardRecord)
    state = shard_of(record, unpacked(message.tensors, data))
    ranges = tuple(Range(*each) for each in message.ranges)
    return Moved(message.number, ranges, state), record.script
