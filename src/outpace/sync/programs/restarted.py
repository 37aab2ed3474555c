"""Servers that come back from an earlier state, while the workers go on.

Any program of a worker with servers can go on: `RestartedServers` stands between the program and
its context. A server that comes back may lack pushes of the worker. The worker closes that gap
(`Rejoin`), as one does that begins in the middle of a run (`sync.checkpoint.state`): these
gradients are lost, and none is applied twice. Then it repeats the pull that has no answer yet, and
its Leave. So a worker must read messages until the coordinator knows that it has finished. While
the program of a script is suspended, the script's process reads them for it (`attend`).

Versions of a server that comes back are lower than before. For the program they go on: it uses the
parameters of a reply only if their version is above the one that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.blocks.block import Block
from outpace.sync.messages import Ack, Leave, Message, Pull, Push, Rejoin, Reply, Restarted
from outpace.sync.programs.context import AbortableContext, Stopped
from outpace.sync.programs.forwarding import ForwardingContext


class _Server:
    """The state of one server from which a worker goes on with it."""

    __slots__ = ("ahead", "left", "owed", "pushed", "shown", "unconfirmed")

    def __init__(self) -> None:
        self.ahead = 0  # how much higher versions are for the program than at the server
        self.shown = 0  # the highest version that the program has seen
        self.pushed = -1  # the last iteration pushed
        self.unconfirmed = False  # True if its Ack has not come
        self.left = False  # True if the worker has left
        self.owed: Pull | None = None  # the last pull, if it has no answer


class RestartedServers(ForwardingContext):
    """The context of a worker's program in a run whose servers may come back.

    acknowledges: True if servers confirm each push (`Policy.acknowledges`).
    """

    def __init__(self, me: AbortableContext, *, acknowledges: bool = False) -> None:
        super().__init__(me)
        self._acknowledges = acknowledges
        self._servers = {name: _Server() for name in me.servers}
        self.execute = me.execute

    @property
    def pushed(self) -> int:
        """The last iteration pushed to any server; -1: none."""
        return max(server.pushed for server in self._servers.values())

    def send(self, to: str, *messages: Message) -> None:
        server = self._servers.get(to)
        for message in messages if server is not None else ():
            assert server is not None
            if isinstance(message, Push):
                message.version = max(0, message.version - server.ahead)
                server.pushed, server.unconfirmed = message.iteration, self._acknowledges
            elif isinstance(message, Rejoin):
                server.pushed, server.unconfirmed = message.first - 1, self._acknowledges
            elif isinstance(message, Pull):
                server.owed = message
            elif isinstance(message, Leave):
                server.left, server.owed = True, None
        self._me.send(to, *messages)

    def attend(self) -> None:
        """Go on with servers that have come back, while the program is suspended elsewhere.

        Messages for the program are kept.
        """
        while (message := self._me.recv_nowait()) is not None:
            self._take(message)

    async def attend_always(self) -> None:
        """As `attend`, until this walker is ended."""
        while True:
            self._take(await self._me.recv())

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        def ends(message: Message) -> bool:
            self._take(message)
            found = [ends_it(self._read.popleft()) for _ in range(len(self._read))]
            return any(found)

        return await self._me.execute_until(parameters, iteration, ends)

    def _take(self, message: Message) -> None:
        """Keep a message for the program, or go on with a server that has come back."""
        if isinstance(message, Restarted):
            self._go_on(message)
            return
        if isinstance(message, Reply) and message.shard < len(self.servers):
            server = self._servers[self.servers[message.shard]]
            if server.owed is not None and message.iteration >= server.owed.iteration:
                server.owed = None
            message.version += server.ahead
            server.shown = max(server.shown, message.version)
        elif isinstance(message, Ack):
            server = self._servers[self.servers[message.shard]]
            if not server.unconfirmed:
                return  # of a Rejoin that the program knows nothing of
            server.unconfirmed = False
        self._read.append(message)

    def _go_on(self, restarted: Restarted) -> None:
        name = self.servers[restarted.shard]
        server = self._servers[name]
        server.ahead = server.shown + 1 - restarted.version
        self._me.send(name, Rejoin(self.worker, server.pushed + 1))
        if server.owed is not None:
            self._me.send(name, server.owed)
        if server.left:
            self._me.send(name, Leave(self.worker))
