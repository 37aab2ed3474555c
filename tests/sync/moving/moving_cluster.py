"""Servers that join and leave, on the kernel in virtual time: programs and a coordinator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from outpace.blocks.block import whole
from outpace.blocks.division import Division, divided_anew, size_of
from outpace.blocks.slicing import even_slices
from outpace.kernel import Kernel, Mailbox
from outpace.optim import Optimizer
from outpace.support.units import nanoseconds
from outpace.sync import Policy
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import Divided, Moved, server_name, worker_name
from outpace.sync.moving.server import Moves
from outpace.sync.moving.worker import DividedServers
from outpace.sync.parameter_block import parameter_block
from outpace.sync.programs.parameter_server import parameter_server, parameter_server_worker
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.shard import Shard


class Silent:
    """Ignores what a shard tells."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Node:
    """A process: a mailbox, and messages that arrive after a random time, in order."""

    def __init__(self, cluster: MovingCluster, name: str) -> None:
        self.cluster, self.kernel, self.name = cluster, cluster.kernel, name
        self.mailbox: Mailbox[Any] = Mailbox(cluster.kernel, name)
        self.recv, self.recv_nowait = self.mailbox.get, self.mailbox.get_nowait
        self.recv_within = self.mailbox.get_within
        self._arrives: dict[str, int] = {}
        cluster.nodes[name] = self

    @property
    def now(self) -> int:
        return self.kernel.now

    def send(self, to: str, *messages: Any) -> None:
        for message in messages:
            due = self.now + nanoseconds(self.cluster.draw.uniform(0, self.cluster.latency_s))
            due = self._arrives[to] = max(due, self._arrives.get(to, 0) + 1)
            self.kernel.call_at(due, self.cluster.nodes[to].mailbox.put, message)

    def refuse(self, message: Any, error: Exception) -> None:
        raise error


class ServerNode(Node):
    def __init__(self, cluster: MovingCluster, server: int, division: Division) -> None:
        super().__init__(cluster, server_name(server))
        self.server, shard = server, None
        if server in division.parts:
            low, high = division.parts[server][0]
            shard = self._shard(cluster.initial[low:high], cluster.workers)
        self.moves = Moves(server, division, shard, self._begin, self._hand, self._begun)
        cluster.kernel.spawn(parameter_server(self, moves=self.moves), self.name, daemon=True)

    @property
    def shard(self) -> Any:
        return self.moves.shard

    def _shard(self, initial: torch.Tensor, workers: int) -> Shard:
        block = parameter_block(initial, self.cluster.optimizer)
        return Shard(self.server, block, workers, self.cluster.policy, Silent())

    def _begin(self, division: Division, state: ShardState, workers: int | None) -> Shard:
        shard = self._shard(torch.zeros(division.size(self.server)), len(state.watermarks))
        shard.restore(state, self.now, everyone=False, workers=workers)
        return shard

    def _hand(self, server: int, moved: Moved) -> None:
        self.cluster.elements_moved += size_of(moved.ranges)
        self.send(server_name(server), moved)

    def _begun(self, division: Division) -> None:
        self.cluster.begun(self.server, division)


class WorkerNode(Node):
    def __init__(self, cluster: MovingCluster, worker: int, first: int | None = None) -> None:
        super().__init__(cluster, worker_name(worker))
        self.worker, self.division = worker, cluster.divisions[0]
        self.first_iteration = first
        self.servers = [server_name(server) for server in self.division.servers]
        self.waits: list[float] = []  # seconds between two computations

    def initial_parameters(self) -> list[torch.Tensor]:
        return [self.cluster.initial[low:high].clone() for low, high in self._slices]

    @property
    def _slices(self) -> list[tuple[int, int]]:
        return [self.division.parts[server][0] for server in self.division.servers]

    async def recv_several(self, count: int) -> list[Any]:
        return [await self.recv()]

    def coin(self, iteration: int) -> float:
        return 0.5

    def must_stop(self, iteration: int) -> bool:
        return self.cluster.must_stop(self.worker, iteration)

    async def execute(self, parameters: Sequence[Any], iteration: int) -> list[torch.Tensor]:
        flat = torch.cat([whole(block) for block in parameters])
        self.cluster.computes(self.worker, iteration, flat)
        await self.kernel.sleep(self.cluster.compute_s(self.worker))
        gradient = self.cluster.gradient(self.worker, iteration, flat)
        return [gradient[low:high].clone() for low, high in self._slices]

    def iteration_finished(self, *_: Any) -> None:
        self.cluster.finished += 1


class MovingCluster:
    """A run whose servers change at given times.

    moves: the time of each change in seconds, and the servers from then on.
    """

    def __init__(
        self,
        policy: Policy,
        optimizer: Optimizer,
        moves: Sequence[tuple[float, set[int]]],
        *,
        workers: int = 3,
        servers: int = 2,
        iterations: int = 8,
        seed: int = 0,
        latency_s: float = 0.05,
    ) -> None:
        self.policy, self.optimizer, self.workers = policy, optimizer, workers
        self.iterations, self.latency_s = iterations, latency_s
        self.kernel = Kernel(tie_seed=seed)
        self.draw, self.pace = random.Random(seed), random.Random(-1 - seed)
        self.nodes: dict[str, Node] = {}
        self.initial = self.begin()
        self.division = Division.of_slices(even_slices(len(self.initial), servers))
        self.elements_moved = self.finished = 0
        self.least_moved = 0
        self.divisions = [self.division]
        self._moves, self._waits_for = list(moves), set[int]()
        for server in range(servers):
            ServerNode(self, server, self.division)
        self._names = [worker_name(worker) for worker in range(workers)]
        for worker in range(workers):
            node: Any = WorkerNode(self, worker)
            self.kernel.spawn(self.program(node), node.name)

    async def program(self, node: Any) -> None:
        context = DividedServers(node, self.divisions[0], self.division)
        await parameter_server_worker(context, PartialPull(quorum_percent=100))

    # -- what is computed: to be overridden ----------------------------------------------

    def begin(self) -> torch.Tensor:
        return torch.linspace(-1, 1, 23)

    def gradient(self, worker: int, iteration: int, flat: torch.Tensor) -> torch.Tensor:
        return (flat * (worker + 1) + iteration).sin()

    def computes(self, worker: int, iteration: int, flat: torch.Tensor) -> None:
        """A worker begins an iteration with these parameters."""

    def must_stop(self, worker: int, iteration: int) -> bool:
        return iteration >= self.iterations

    def compute_s(self, worker: int) -> float:
        return self.pace.uniform(0.01, 0.2)

    # -- the coordinator -------------------------------------------------------------------

    def run(self) -> torch.Tensor:
        """Return the parameters at the end."""
        if self._moves:
            self.kernel.call_at(nanoseconds(self._moves[0][0]), self._divide, None)
        self.kernel.run()
        while self._waits_for or self._moves:  # the workers have ended, and the servers go on
            self.kernel.spawn(self._rest(), "the rest")
            self.kernel.run()
        self.kernel.close()
        found = torch.full_like(self.initial, torch.nan)
        for server, part in self.division.parts.items():
            node = self.nodes[server_name(server)]
            assert isinstance(node, ServerNode)
            block, place = whole(node.shard.read()), 0
            for low, high in part:
                found[low:high] = block[place : place + high - low]
                place += high - low
        return found

    async def _rest(self) -> None:
        await self.kernel.sleep(10.0)

    def _divide(self, _: None) -> None:
        _, servers = self._moves.pop(0)
        before, after = self.division, divided_anew(self.division, servers)
        had = {server: before.size(server) for server in before.parts}
        kept = sum(min(had.get(server, 0), after.size(server)) for server in servers)
        self.least_moved += after.elements - kept
        self.division, self._waits_for = after, set(before.parts) | servers
        self.divisions.append(after)
        for server in servers - set(before.parts):
            # A new process, also of one that has left.
            self.joins(ServerNode(self, server, before))
        late = 0
        for server in self._waits_for:  # all servers know of it before the first worker does
            node, due = self.nodes[server_name(server)], self._soon()
            late = max(late, due)
            self.kernel.call_at(due, node.mailbox.put, Divided(after))
        for name in self._names:
            due = late + nanoseconds(self.draw.uniform(0, 0.1))
            self.kernel.call_at(due, self.nodes[name].mailbox.put, Divided(after))

    def _soon(self) -> int:
        return self.kernel.now + nanoseconds(self.draw.uniform(0, self.latency_s))

    def joins(self, server: ServerNode) -> None:
        """A server joins, and has heard of nothing yet."""

    def begun(self, server: int, division: Division) -> None:
        assert division is self.division
        self._waits_for.remove(server)
        self._go_on()

    def _go_on(self) -> None:
        if not self._waits_for and self._moves:
            at = max(nanoseconds(self._moves[0][0]), self.kernel.now)
            self.kernel.call_at(at, self._divide, None)
