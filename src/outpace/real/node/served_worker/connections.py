"""A worker's connections to the servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outpace.blocks.block import Block
from outpace.real.net.block_frames import on_the_wire, value_bytes
from outpace.real.net.messages import BlockHead, Plan
from outpace.real.net.transport import Caller, Handlers, Transport
from outpace.real.node.member import Lost
from outpace.real.node.served_worker.expected_blocks import expected_of
from outpace.sync.messages import WireMessage, server_name


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """The connection to the server of this number."""

    number: int
    caller: Caller


class Connections:
    """The connections to the servers.

    Args:
        name: of the worker.
        is_narrow: True if answers to pulls carry bfloat16.
        on_message: called with the name of a server and its message.
        is_done: returns True when the worker has reported its end.

    Attributes:
        by_name: the connections, by the name of the server; empty before `connect`.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        is_narrow: bool,
        on_message: Callable[[str, WireMessage, Block | None], None],
        is_done: Callable[[], bool],
    ) -> None:
        self._name, self._transport, self._is_narrow = name, transport, is_narrow
        self._on_message, self._is_done = on_message, is_done
        self.by_name: dict[str, Connection] = {}

    def connect(
        self, plan: Plan, heads: Sequence[BlockHead], lengths: Sequence[Mapping[int, int]]
    ) -> None:
        """Connect to the servers.

        Args:
            heads: of the servers' blocks.
            lengths: for each server, how many elements of each tensor of a script it has.
        """
        keys = plan.keys or [""] * len(heads)
        for server, (endpoint, key) in enumerate(zip(plan.endpoints, keys, strict=True)):
            name = server_name(server)
            expect = expected_of(server, heads[server], lengths[server], is_narrow=self._is_narrow)
            handlers = Handlers(expect, self._on_message, self._lost)
            caller = self._transport.call(name, endpoint, key, handlers)
            caller.share_memory(self._block_bytes(heads[server]))
            self.by_name[name] = Connection(server, caller)

    def _block_bytes(self, head: BlockHead) -> int:
        """Return the bytes of one block with the parameters of a server."""
        block = head.dtype, head.elements
        return value_bytes(on_the_wire(block) if self._is_narrow else block)

    def _lost(self, server: str) -> None:
        """The connection to a server has ended. Raises Lost unless the worker's end came."""
        if not self._is_done():
            raise Lost(self._name, server)
