"""Servers and workers that join and leave one run, on the kernel in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tests.sync.moving.moving_cluster import MovingCluster, ServerNode, WorkerNode

from outpace.optim import Sgd
from outpace.support.units import nanoseconds
from outpace.sync import Policy
from outpace.sync.membership import Membership, Order, Replace, Rules, Start
from outpace.sync.messages import Lost, SetWorkers, server_name, worker_name

MOST = 5  # workers
WORKERS = -1  # in place of a server that is waited for


class ElasticCluster(MovingCluster):
    """Each gradient has a parameter of its own, to which its weight in the step is added.

    changes: the time of each change in seconds, and the servers, or the number of workers, from
    then on. It is passed over when the run is about to end.
    """

    def __init__(
        self, policy: Policy, changes: Sequence[tuple[float, set[int] | int]], seed: int
    ) -> None:
        moves: Any = changes
        super().__init__(policy, Sgd(lr=1.0), moves, workers=2, seed=seed)
        self.asked_for = [2]
        self.members = Membership(
            2, [server_name(server) for server in self.division.servers], Rules()
        )
        self.begun_with: dict[tuple[int, int], torch.Tensor] = {}  # by worker and iteration
        self.known: dict[tuple[int, int], int] = {}  # number in `asked_for` that all servers had
        self._known = 0
        self._last = dict.fromkeys(range(MOST), self.iterations)  # that a worker does not begin
        self._done: set[int] = set()  # workers that take part, and are at their end
        self._due: dict[str, int] = {}  # when a server has heard the last order
        self._starts: dict[int, Start] = {}
        self._joining: set[int] = set()
        self._leaving: set[int] = set()

    def begin(self) -> torch.Tensor:
        return torch.zeros(MOST * self.iterations)

    def gradient(self, worker: int, iteration: int, flat: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(MOST, self.iterations)
        found[worker, iteration] = -1.0
        return found.reshape(-1)

    def computes(self, worker: int, iteration: int, flat: torch.Tensor) -> None:
        assert (worker, iteration) not in self.begun_with
        self.known[worker, iteration] = self._known
        self.begun_with[worker, iteration] = flat.reshape(MOST, self.iterations).clone()

    def must_stop(self, worker: int, iteration: int) -> bool:
        return iteration >= self._last[worker]

    async def program(self, node: WorkerNode) -> None:
        await super().program(node)
        await self.kernel.sleep(2 * self.latency_s)  # no message of this process comes any more
        self.members.finished(node.worker)
        if node.worker not in self._leaving:
            self._done.add(node.worker)
            return
        self._leaving.discard(node.worker)
        if not self._leaving:
            self._tell(SetWorkers(self.asked_for[-1]))
            self._is_done()

    # -- the coordinator -----------------------------------------------------------------

    def _divide(self, _: None) -> None:
        wanted: Any = self._moves[0][1]
        if self._done:
            self._moves.clear()
        elif isinstance(wanted, int):
            self._moves.pop(0)
            self._scale(wanted)
        elif self.members.is_settled:
            super()._divide(None)
        else:
            self.kernel.call_at(self.kernel.now + nanoseconds(0.05), self._divide, None)

    def joins(self, server: ServerNode) -> None:
        if len(self.asked_for) > 1:
            server.mailbox.put(SetWorkers(self.asked_for[-1]))

    def begun(self, server: int, division: Any) -> None:
        if self._waits_for == {server}:
            self.members.serve_by([server_name(each) for each in division.servers])
        super().begun(server, division)

    def _scale(self, wanted: int) -> None:
        before = self.asked_for[-1]
        self._waits_for.add(WORKERS)
        self.asked_for.append(wanted)
        if wanted > before:
            self._joining = set(range(before, wanted))
            for worker in sorted(self._joining):
                self.members.arrives(worker, self.kernel.now)
            self.kernel.call_at(self._soon(), self._let_join, None)
        elif wanted < before:
            first = 2 + max((each for _, each in self.begun_with), default=0)
            self._leaving = set(range(wanted, before))
            for worker in self._leaving:
                self.members.retires(worker)
                self._last[worker] = min(first, self.iterations)
        else:
            self.asked_for.pop()
            self._is_done()

    def _let_join(self, _: None) -> None:
        self._tell(SetWorkers(self.asked_for[-1]))
        for worker in sorted(self._joining):
            self._do(self.members.joins(worker, self.kernel.now))

    def _do(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order, Replace):
                due = self._tell(Lost(order.worker, order.stays), order.server)
                self.kernel.call_at(due + 1, self._confirm, order)
            else:
                assert isinstance(order, Start)
                self._joining.remove(order.worker)
                self.kernel.call_at(self._soon(), self._start, order)

    def _confirm(self, order: Replace) -> None:
        node: Any = self.nodes[order.server]
        if len(node.mailbox):
            self.kernel.call_at(self.kernel.now + 1, self._confirm, order)
            return
        reached = node.shard.watermark(order.worker), node.shard.clock
        args = order.worker, order.generation, *reached, self.kernel.now
        self._do(self.members.confirmed(order.server, *args))

    def _start(self, order: Start) -> None:
        self.members.began(order.worker)
        self._last[order.worker] = self.iterations
        node = WorkerNode(self, order.worker, order.first)
        if node.name not in self._names:
            self._names.append(worker_name(order.worker))
        self.kernel.spawn(self.program(node), node.name)
        if not self._joining and self.members.is_settled:
            self._is_done()

    def _tell(self, message: Any, *names: str) -> int:
        """Tell servers, all by default; return when the last of them hears of it."""
        names = names or tuple(server_name(server) for server in self.division.servers)
        for name in names:
            self._due[name] = max(self._soon(), self._due.get(name, 0) + 1)
            self.kernel.call_at(self._due[name], self.nodes[name].mailbox.put, message)
        return max(self._due[name] for name in names)

    def _is_done(self) -> None:
        def knows(number: int) -> None:
            self._known = number

        heard = max(self._due.values(), default=0)
        self.kernel.call_at(max(heard, self.kernel.now), knows, len(self.asked_for) - 1)
        self._waits_for.remove(WORKERS)
        self._go_on()
