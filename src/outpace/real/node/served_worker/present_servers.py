"""The servers that a worker has now, and what changes when they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outpace.blocks.block import Block
from outpace.blocks.division import Division, Ranges
from outpace.kernel import Kernel, Mailbox
from outpace.real.net.messages import BlockHead, Plan
from outpace.real.net.moving_messages import Divide
from outpace.real.net.transport import Transport
from outpace.real.node.member import CoordinatorLink, Lost
from outpace.real.node.served_worker.connections import Connections
from outpace.real.node.served_worker.divisions import Divisions
from outpace.real.node.served_worker.expected_blocks import Expect, expected_of
from outpace.real.node.served_worker.inbox import Inbox
from outpace.real.node.served_worker.requests import Requests
from outpace.real.node.timing import RequestTimes
from outpace.sync.messages import Divided, WireMessage, server_name


class PresentServers:
    """Follows the coordinator's orders about servers, and tells the program of them.

    Args:
        inbox: the program's.
        times: of the requests to the servers.
        is_narrow: True if answers to pulls carry bfloat16.
        on_message: see `Connections`.
        is_done: returns True when the worker has reported its end.

    Attributes:
        connections: to the servers.
        requests: to all servers.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        transport: Transport,
        kernel: Kernel,
        divisions: Divisions,
        inbox: Inbox,
        times: RequestTimes,
        *,
        is_narrow: bool,
        on_message: Callable[[str, WireMessage, Block | None], None],
        is_done: Callable[[], bool],
    ) -> None:
        self._divisions, self._inbox = divisions, inbox
        self._is_narrow, self._is_done = is_narrow, is_done
        self._joined = Mailbox[Divide](kernel, "the present servers")
        self._heads: Sequence[BlockHead] = []
        self._lengths: Callable[[Ranges], Mapping[int, int]] = lambda part: {}
        self._name = link.name
        self.connections = Connections(
            transport,
            divisions,
            times,
            expect=self._expect,
            on_message=on_message,
            on_lost=self._lost,
        )
        self.requests = Requests(kernel, divisions, self.connections.by_name)

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
            self.connections.connect(first.servers, plan.endpoints, plan.keys)
        else:  # some have joined or left
            present = await self._joined.get()
            self._divisions.begin(first, present.division.division(), plan.dtype)
            self._connect_joined(present)

    def take(self, order: WireMessage) -> bool:
        """Follow an order of the coordinator; False if it is about something else."""
        if not isinstance(order, Divide):
            return False
        if self._divisions.program is None:
            self._joined.put(order)
        else:
            self._divide(order)
        return True

    def _lost(self, server: int) -> None:
        """The connection to a server has ended. Raises Lost unless it has left, or the end came."""
        if not self._is_done() and server in self._divisions.present.parts:
            raise Lost(self._name, server_name(server))

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
        self.connections.connect(order.servers, order.endpoints, order.keys)

    def _expect(self, server: int) -> Expect:
        """Return the check of the blocks that this server may send."""
        head = self._heads[server] if server < len(self._heads) else None
        return expected_of(server, head, self._divisions, self._lengths, is_narrow=self._is_narrow)
