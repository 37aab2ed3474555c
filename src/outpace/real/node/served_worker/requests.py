"""A worker's requests to all servers: for their parameters, and for their optimizers' state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

from outpace.blocks.block import Block, whole
from outpace.kernel import Kernel, Mailbox
from outpace.optim.torch_optimizers import State
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import Fetch, FetchState, OptimizerState, Snapshot
from outpace.real.node.optimizer_state import entries_of, state_from
from outpace.real.node.served_worker.connections import Connection

_T = TypeVar("_T")


class Requests:
    """Requests to each server.

    Args:
        connections: to the servers, by name, in ascending order of their numbers.
    """

    def __init__(self, kernel: Kernel, connections: Mapping[str, Connection]) -> None:
        self._connections = connections
        # What servers answer, with their numbers.
        self._states = Mailbox[tuple[int, dict[int, State]]](kernel, "the optimizer's state")
        self._snapshots = Mailbox[tuple[int, Block]](kernel, "the servers' parameters")

    # -- requests ------------------------------------------------------------------------

    async def parameters(self, *, final: bool) -> list[Block]:
        """Return the servers' parameters, in ascending order.

        final: those at the end of the training, for which the servers wait.
        """
        return await self._all_of(Fetch(final), self._snapshots)

    async def optimizer_state(self) -> list[dict[int, State]]:
        """Return the state of the servers' optimizers, in ascending order."""
        return await self._all_of(FetchState(), self._states)

    def replace_optimizer_state(self, states: Sequence[Mapping[int, State]]) -> None:
        """Send the state of the servers' optimizers, one for each server in ascending order."""
        for connection, state in zip(self._connections.values(), states, strict=True):
            entries, data = entries_of(state)
            message = OptimizerState(connection.number, entries, head_of(data))
            connection.caller.send(message, data)

    async def _all_of(
        self, request: Fetch | FetchState, answers: Mailbox[tuple[int, _T]]
    ) -> list[_T]:
        """Return the answers of all servers to a request."""
        for connection in self._connections.values():
            connection.caller.send(request)
        found: dict[int, _T] = {}
        while len(found) < len(self._connections):
            server, answer = await answers.get()
            found[server] = answer
        return [found[server] for server in sorted(found)]

    # -- answers -------------------------------------------------------------------------

    def take(self, message: Snapshot | OptimizerState, block: Block | None) -> None:
        """Take the answer of a server."""
        assert block is not None
        data = whole(block)
        if isinstance(message, Snapshot):
            self._snapshots.put((message.shard, data))
        else:
            assert isinstance(data, torch.Tensor)
            self._states.put((message.shard, state_from(message.entries, data)))
