"""A worker's requests to all servers: for their parameters, and for their optimizers' state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import torch

from outpace.blocks.block import Block, value_of, whole
from outpace.blocks.division import Division, Ranges
from outpace.blocks.recutting import Recut
from outpace.kernel import Kernel, Mailbox
from outpace.optim.torch_optimizers import State
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import Fetch, FetchState, OptimizerState, Snapshot
from outpace.real.node.optimizer_state import entries_of, state_from
from outpace.real.node.served_worker.connections import Connection
from outpace.real.node.served_worker.divisions import Divisions
from outpace.sync.messages import server_name

_T = TypeVar("_T")
_Answer: TypeAlias = tuple[int, int, _T] | None


class Requests:
    """Requests to each server of a division.

    Args:
        connections: to the servers, by name.
    """

    def __init__(
        self,
        kernel: Kernel,
        divisions: Divisions,
        connections: Mapping[str, Connection],
    ) -> None:
        self._divisions, self._connections = divisions, connections
        # What servers answer: their division and number, and the answer. None: ask them again.
        self._states = Mailbox[_Answer[dict[int, State]]](kernel, "the optimizer's state")
        self._snapshots = Mailbox[_Answer[Block]](kernel, "the servers' parameters")
        self._unanswered: dict[str, Fetch | FetchState] = {}  # by the name of the server

    # -- requests ------------------------------------------------------------------------

    async def parameters(self, *, final: bool) -> list[Block]:
        """Return the servers' parameters, in the blocks that the program knows.

        final: those at the end of the training, for which the servers wait.
        """
        asked, blocks = await self._all_of(lambda division: Fetch(final, division), self._snapshots)
        if asked.number == 0:
            return [blocks[server] for server in range(len(blocks))]
        first = self._divisions.first
        values = {server: value_of(block) for server, block in blocks.items()}
        return [Recut(first.parts[n], asked).block(values) for n in first.servers]

    async def optimizer_state(self) -> list[tuple[Ranges, dict[int, State]]]:
        """Return the state of the servers' optimizers, each with the part of its server."""
        asked, states = await self._all_of(FetchState, self._states)
        return [(asked.parts[server], state) for server, state in sorted(states.items())]

    def replace_optimizer_state(self, states: Sequence[Mapping[int, State]]) -> None:
        """Send the state of the servers' optimizers, one for each server in ascending order."""
        division = self._divisions.serving
        for server, state in zip(division.servers, states, strict=True):
            name = server_name(server)
            entries, data = entries_of(state)
            message = OptimizerState(server, entries, head_of(data), division.number)
            self._connections[name].caller.send(message, data)

    async def _all_of(
        self, request: Callable[[int], Fetch | FetchState], answers: Mailbox[_Answer[_T]]
    ) -> tuple[Division, dict[int, _T]]:
        """Return the answers of all servers of a division to a request, and this division.

        Servers of the next division are asked if one begins meanwhile, as when a script waits for
        the end of others.
        """
        divisions = self._divisions
        asked = divisions.serving
        found: dict[int, _T] = {}
        self._ask(asked, request(asked.number))
        while len(found) < len(asked.parts):
            answer = await answers.get()
            if divisions.serving is not asked:
                asked = divisions.serving
                found.clear()
                self._ask(asked, request(asked.number))
            elif answer is not None and answer[0] == asked.number:
                found[answer[1]] = answer[2]
        return asked, found

    def _ask(self, division: Division, request: Fetch | FetchState) -> None:
        """Send a request to its servers."""
        self._unanswered.clear()
        for name in map(server_name, division.servers):
            self._unanswered[name] = request
            self._connections[name].caller.send(request)

    # -- answers, and what happens to the servers --------------------------------------------

    def take(self, peer: str, message: Snapshot | OptimizerState, block: Block | None) -> None:
        """Take the answer of a server."""
        request = self._unanswered.get(peer)
        if request is not None and request.division == message.division:
            del self._unanswered[peer]
        assert block is not None
        data = whole(block)
        if isinstance(message, Snapshot):
            self._snapshots.put((message.division, message.shard, data))
        else:
            assert isinstance(data, torch.Tensor)
            state = state_from(message.entries, data)
            self._states.put((message.division, message.shard, state))

    def ask_again(self) -> None:
        """A new division has begun: ask its servers, if answers are awaited."""
        if self._unanswered:
            self._snapshots.put(None)
            self._states.put(None)
