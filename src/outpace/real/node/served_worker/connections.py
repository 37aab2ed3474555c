"""A worker's connections to the servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from outpace.blocks.block import Block
from outpace.real.net.transport import FIRST, Caller, Handlers, Transport
from outpace.real.node.served_worker.divisions import Divisions
from outpace.real.node.served_worker.expected_blocks import Expect
from outpace.real.node.timing import RequestTimes
from outpace.sync.messages import WireMessage, server_name


@dataclass(slots=True, eq=False)
class Connection:
    """The connection to one server. It stays the same when the server has a new process.

    Attributes:
        number: of the server.
        key: the server's public key; empty if insecure.
        generation: of the server's process.
        caller: sends to this process.
    """

    number: int
    key: str
    generation: int
    caller: Caller = field(init=False)


class Connections:
    """The connections to the servers of the present division.

    Args:
        times: told of each server that there is, and of the requests that a lost one had.
        expect: returns the check of the blocks that a server may send.
        block_bytes: returns the bytes of the blocks for a server; 0: they are not known.
        on_message: called with the name of a server and its message. Messages of a process in
            whose place there is another one are dropped.
        on_lost: called with a connection that has ended, if this class has not closed it.

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
        block_bytes: Callable[[int], int],
        on_message: Callable[[str, WireMessage, Block | None], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._transport, self._divisions, self._times = transport, divisions, times
        self._expect, self._block_bytes = expect, block_bytes
        self._on_message, self._on_lost = on_message, on_lost
        self.by_name: dict[str, Connection] = {}

    def connect(
        self,
        servers: Sequence[int],
        endpoints: Sequence[str],
        keys: Sequence[str],
        generations: Sequence[int],
    ) -> None:
        """Connect to servers of the present division, if there is no connection yet.

        Args:
            servers: numbers; those that are not in the division are ignored.
            keys: empty if insecure.
            generations: of the servers' processes; empty: all are the first.
        """
        keys = keys or [""] * len(servers)
        generations = generations or [FIRST] * len(servers)
        known = zip(servers, endpoints, keys, generations, strict=True)
        for server, endpoint, key, generation in known:
            name = server_name(server)
            if server in self._divisions.present.parts and name not in self.by_name:
                self.by_name[name] = Connection(server, key, generation)
                self._call(self.by_name[name], endpoint)
        numbers = [connection.number for connection in self.by_name.values()]
        self._times.connected(1 + max(numbers))

    def reconnect(self, server: int, endpoint: str, generation: int) -> bool:
        """Connect to the new process of a server; False if that has been done, or will be.

        A worker that has no plan yet, and so no connection, gets one with the new process.
        """
        connection = self.by_name.get(server_name(server))
        if connection is None or generation <= connection.generation:
            return False
        connection.caller.close(0.0)
        connection.generation = generation
        self._call(connection, endpoint)
        self._times.forget(server)
        return True

    def gone_over(self, name: str) -> None:
        """The worker sends nothing more to this server for the division before the present one.

        The connection is closed if the server has no part in the present one.
        """
        if self.by_name[name].number not in self._divisions.present.parts:
            self.by_name.pop(name).caller.close()

    def _call(self, connection: Connection, endpoint: str) -> None:
        name, generation = server_name(connection.number), connection.generation
        connection.caller = self._transport.call(
            name,
            endpoint,
            connection.key,
            Handlers(
                self._expect(connection.number),
                partial(self._take, connection, generation),
                partial(self._lost, connection, generation),
            ),
            generation,
        )
        connection.caller.share_memory(self._block_bytes(connection.number))

    def _take(
        self,
        connection: Connection,
        generation: int,
        peer: str,
        message: WireMessage,
        block: Block | None,
    ) -> None:
        if generation == connection.generation:
            self._on_message(peer, message, block)

    def _lost(self, connection: Connection, generation: int, _: str) -> None:
        if generation == connection.generation:
            self._on_lost(connection)
