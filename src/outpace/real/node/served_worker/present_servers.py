"""The servers that a worker has now, and what changes when they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outpace.blocks.block import Block
from outpace.blocks.division import Division, Ranges
from outpace.kernel import Kernel, Mailbox
from outpace.real.net.block_frames import on_the_wire, value_bytes
from outpace.real.net.clock import RealClock
from outpace.real.net.membership_messages import ServerLost, ServerReturned
from outpace.real.net.messages import BlockHead, Plan
from outpace.real.net.moving_messages import Divide
from outpace.real.net.transport import Transport
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.served_worker.connections import Connections
from outpace.real.node.served_worker.divisions import Divisions
from outpace.real.node.served_worker.expected_blocks import Expect, expected_of
from outpace.real.node.served_worker.inbox import Inbox
from outpace.real.node.served_worker.lost_servers import LostServers
from outpace.real.node.served_worker.requests import Requests
from outpace.real.node.timing import RequestTimes
from outpace.sync.messages import Divided, Restarted, WireMessage, server_name


class PresentServers:
    """Follows the coordinator's orders about servers, and tells the program of them.

    Args:
        inbox: the program's.
        times: of the requests to the servers.
        return_alone: True if a lost server comes back while the workers go on.
        is_narrow: True if answers to pulls carry bfloat16.
        on_message: see `Connections`.
        is_done: returns True when the worker has reported its end.

    Attributes:
        connections: to the servers.
        lost: the servers to which nothing may be sent.
        requests: to all servers.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        transport: Transport,
        kernel: Kernel,
        clock: RealClock,
        divisions: Divisions,
        inbox: Inbox,
        times: RequestTimes,
        *,
        return_alone: bool,
        is_narrow: bool,
        on_message: Callable[[str, WireMessage, Block | None], None],
        is_done: Callable[[], bool],
    ) -> None:
        self._divisions, self._inbox = divisions, inbox
        self._is_narrow, self._is_done = is_narrow, is_done
        self._joined = Mailbox[Divide](kernel, "the present servers")
        self._heads: Sequence[BlockHead] = []
        self._lengths: Callable[[Ranges], Mapping[int, int]] = lambda part: {}
        self.lost = LostServers(
            link, kernel, clock, divisions, return_alone=return_alone, is_done=is_done
        )
        self.connections = Connections(
            transport,
            divisions,
            times,
            expect=self._expect,
            block_bytes=self._block_bytes,
            on_message=on_message,
            on_lost=self.lost.lost,
        )
        self.requests = Requests(
            link.name, kernel, divisions, self.connections.by_name, self.lost.known
        )

    async def connect(
        self,
        plan: Plan,
        heads: Sequence[BlockHead],
        lengths: Callable[[Ranges], Mapping[int, int]],
    ) -> None:
        """Connect to the servers that there are, once these are known.

        Args:
            heads: of the blocks of the servers with which the run begins.
            lengths: see `Trainer.lengths`.
        """
        self._heads, self._lengths = heads, lengths
        first = Division.of_slices(plan.slices)
        if not plan.division:
            self._divisions.begin(first, first, plan.dtype)
            self.connections.connect(first.servers, plan.endpoints, plan.keys, plan.generations)
        else:  # some have joined or left
            present = await self._joined.get()
            self._divisions.begin(first, present.division.division(), plan.dtype)
            self._connect_joined(present)

    def take(self, order: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is about something else."""
        if isinstance(order, ServerLost):
            self._lost(server_name(order.shard))
        elif isinstance(order, ServerReturned):
            self._reconnect(order)
        elif not isinstance(order, Divide):
            return False
        elif self._divisions.program is None:
            self._joined.put(order)
        else:
            self._divide(order)
        return True

    def _lost(self, name: str) -> None:
        if (connection := self.connections.by_name.get(name)) is not None:
            self.lost.coordinator_knows(connection)

    def _reconnect(self, returned: ServerReturned) -> None:
        """Connect to the new process of a server, unless that has been done."""
        if self._is_done():
            return
        server = returned.shard
        if self.connections.reconnect(server, returned.endpoint, returned.generation):
            self.lost.is_back(server)
            self.requests.reconnected(server_name(server))
            self._inbox.put_restarted(Restarted(server, returned.version))

    def _divide(self, order: Divide) -> None:
        """Connect to the servers that have joined, and have the program go over."""
        if self._is_done():
            return
        divisions = self._divisions
        divisions.change(order.division.division())
        self._connect_joined(order)
        self._inbox.mailbox.put(Divided(divisions.present))
        if divisions.program_has_left:
            self.requests.ask_again()

    def _connect_joined(self, order: Divide) -> None:
        self.connections.connect(order.servers, order.endpoints, order.keys, order.generations)

    def _expect(self, server: int) -> Expect:
        """Return the check of the blocks that this server may send."""
        head = self._heads[server] if server < len(self._heads) else None
        return expected_of(server, head, self._divisions, self._lengths, is_narrow=self._is_narrow)

    def _block_bytes(self, server: int) -> int:
        """Return the bytes of the blocks for a server; 0: they have no values."""
        head = self._heads[server] if server < len(self._heads) else None
        if head is None:
            return 0
        block = head.dtype, head.elements
        return value_bytes(on_the_wire(block) if self._is_narrow else block)
