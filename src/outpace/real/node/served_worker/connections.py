"""A worker's connections to the servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from outpace.blocks.block import Block
from outpace.real.net.transport import Caller, Handlers, Transport
from outpace.real.node.served_worker.divisions import Divisions
from outpace.real.node.served_worker.expected_blocks import Expect
from outpace.real.node.timing import RequestTimes
from outpace.sync.messages import WireMessage, server_name


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """The connection to the server of this number."""

    number: int
    caller: Caller


class Connections:
    """The connections to the servers of the present division.

    Args:
        times: told of each server that there is.
        expect: returns the check of the blocks that a server may send.
        on_message: called with the name of a server and its message.
        on_lost: called with the number of a server whose connection has ended, if this class has
            not closed it.

    Attributes:
        by_name: the connections, by the name of the server.
    """

    def __init__(
        self,
        transport: Transport,
        divisions: Divisions,
        times: RequestTimes,
        *,
        expect: Callable[[int], Expect],
        on_message: Callable[[str, WireMessage, Block | None], None],
        on_lost: Callable[[int], None],
    ) -> None:
        self._transport, self._divisions, self._times = transport, divisions, times
        self._expect, self._on_message, self._on_lost = expect, on_message, on_lost
        self.by_name: dict[str, Connection] = {}

    def connect(
        self, servers: Sequence[int], endpoints: Sequence[str], keys: Sequence[str]
    ) -> None:
        """Connect to servers of the present division, if there is no connection yet.

        Args:
            servers: numbers; those that are not in the division are ignored.
            keys: empty if insecure.
        """
        for server, endpoint, key in zip(
            servers, endpoints, keys or [""] * len(servers), strict=True
        ):
            name = server_name(server)
            if server in self._divisions.present.parts and name not in self.by_name:
                handlers = Handlers(
                    self._expect(server), self._on_message, partial(self._lost, server)
                )
                caller = self._transport.call(name, endpoint, key, handlers)
                self.by_name[name] = Connection(server, caller)
        numbers = [connection.number for connection in self.by_name.values()]
        self._times.connected(1 + max(numbers))

    def gone_over(self, name: str) -> None:
        """The worker sends nothing more to this server for the division before the present one.

        The connection is closed if the server has no part in the present one.
        """
        if self.by_name[name].number not in self._divisions.present.parts:
            self.by_name.pop(name).caller.close()

    def _lost(self, server: int, _: str) -> None:
        self._on_lost(server)
