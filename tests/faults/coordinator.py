"""The coordinator of a simulated cluster: it takes checkpoints and replaces what is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.faults.processes import Fence, Judge, Process, ServerProcess, WorkerProcess

from outpace.support.units import nanoseconds
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order
from outpace.sync.checkpoint.state import ShardState, aligned, first_iteration
from outpace.sync.messages import SCHEDULER, Lost, Rejoin, server_name, worker_name

if TYPE_CHECKING:
    from tests.faults.cluster import Cluster
    from tests.faults.oracle import Pair

START_S = 0.1  # from the order to start a process until it runs


@dataclass
class Replacement:
    """A worker that is lost. The judges confirm that they do not hear its process any more."""

    old: WorkerProcess
    generation: int
    stays: bool
    back_s: float | None  # until a worker that has left is back; None: never
    is_back: bool = False  # True when they confirm that the one that had left may be back
    is_away: bool = False  # True once all judges know that it has left
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A checkpoint that is whole, and what was missing when it was taken."""

    states: list[ShardState]
    missing: frozenset[Pair]


class Coordinator:
    """One for all attempts of a run: it does not fail. `attempt` rises when all begin again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._kernel = cluster, cluster.kernel
        self._scenario = cluster.scenario
        self.attempt = 0
        self._stored: Stored | None = None
        self._planner = CutPlanner(self._scenario.servers, cluster.strategy.exact)
        self._parts: dict[int, ShardState] = {}
        self._replacing: dict[int, Replacement] = {}
        self._down: set[int] = set()
        self._finished: set[int] = set()
        self._away: dict[int, bool] = {}  # workers that have left -> whether they come back
        self._is_starting = False
        self._came_back = False  # True if a server has come back while the workers went on
        self._after(self._scenario.checkpoint_s, self._checkpoint_is_due)

    # -- attempts ------------------------------------------------------------------

    def begin(self, stored: Stored | None) -> None:
        """Start all processes, from a checkpoint or from the beginning."""
        cluster, scenario = self._cluster, self._scenario
        self._replacing.clear()
        self._down.clear()
        self._finished.clear()
        self._away.clear()
        self._is_starting = self._came_back = False
        states = None
        if stored is not None:
            states = stored.states
            if cluster.policy.cut_off is not None:
                states = aligned(states)
            cluster.oracle.went_back(states, stored.missing)
        else:
            cluster.oracle.begin()
        cluster.start_servers(states)
        self._planner = CutPlanner(scenario.servers, cluster.strategy.exact, self._planner.number)
        self._parts = {}
        for order in self._planner.begin(states[0].clock if states else 0):
            server = cluster.processes[server_name(order.shard)]
            assert isinstance(server, ServerProcess)
            server.cuts.ask(order.number, order.clock)
        for worker in range(scenario.workers):
            first = None if states is None else first_iteration(worker, states)
            cluster.start_worker(worker, cluster.generation, first)

    def restart_all(self) -> None:
        """End everything, and begin again from the last checkpoint."""
        if self._is_starting:
            return
        self.attempt += 1
        self._is_starting = True
        self._cluster.generation += 1
        for process in self._cluster.processes.values():
            process.end(drops=True)
        self._cluster.processes.clear()
        self._planner.abandon()
        self._after(START_S, lambda: self.begin(self._stored))

    # -- processes that are lost ---------------------------------------------------

    def unreachable(self, process: Process) -> None:
        """A connection of this process is broken."""
        self.lost(process)

    def lost(
        self,
        process: Process,
        *,
        stays: bool = True,
        back_s: float | None = None,
        alone: bool = False,
    ) -> None:
        """A process has ended, or is not heard any more."""
        if self._cluster.processes.get(process.name) is not process:
            return
        if isinstance(process, WorkerProcess):
            if process.worker in self._away:
                return
            if process.worker in self._finished:
                self._let_go(process.worker)
            elif process.worker not in self._replacing:
                self._replace(process, stays, back_s)
        elif self._cluster.over.done:
            return
        elif isinstance(process, ServerProcess) and process.shard.index not in self._down:
            process.end()
            if not alone or not self._cluster.strategy.alone or self._stored is None:
                self.restart_all()
                return
            self._down.add(process.shard.index)
            self._send(self._planner.abandon())
            self._after(START_S, partial(self._restart_server, process.shard.index))

    def _replace(self, process: WorkerProcess, stays: bool, back_s: float | None) -> None:
        if process.can_be_killed:
            process.end()
        if not stays:
            self._cluster.oracle.leaves(process.worker)
            self._away[process.worker] = back_s is not None
        self._cluster.generation += 1
        replacement = Replacement(process, self._cluster.generation, stays, back_s)
        self._replacing[process.worker] = replacement
        for judge in self._cluster.judges:
            # A scheduler that is told that a worker has left may let others through: the servers
            # must know it first.
            if stays or judge.name != SCHEDULER:
                self._order(judge, partial(self._fence_off, replacement))

    def _let_go(self, worker: int) -> None:
        """A worker has finished, and its last message may not have arrived everywhere."""
        self._cluster.generation += 1
        process = self._cluster.processes[worker_name(worker)]
        assert isinstance(process, WorkerProcess)
        gone = Replacement(process, self._cluster.generation, False, None)
        for judge in self._cluster.judges:
            self._order(judge, partial(self._fence_off, gone))

    async def _fence_off(self, replacement: Replacement, judge: Judge) -> None:
        """In the process of a judge: hear only the next process of the worker."""
        worker = replacement.old.worker
        judge.fences[worker_name(worker)] = Fence(replacement.generation)
        # One that had left is waited for from now on. If it were only when its own Rejoin arrives,
        # shards could have moved on differently meanwhile, and its first pulls answered too early.
        lost = Lost(worker, replacement.stays)
        judge.mailbox.put(Rejoin(worker, 0) if replacement.is_back else lost)
        await judge.settled()
        progress = judge.progress(worker)
        self.hears(judge, partial(self._confirmed, replacement, judge, progress))

    def _confirmed(self, replacement: Replacement, judge: Judge, progress: tuple[int, int]) -> None:
        worker = replacement.old.worker
        if self._replacing.get(worker) is not replacement:
            return
        replacement.heard[judge.name] = progress
        if not (replacement.stays or replacement.is_back):
            names = {each.name for each in self._cluster.judges}
            if SCHEDULER in names and replacement.heard.keys() == names - {SCHEDULER}:
                scheduler = self._cluster.judges[-1]
                self._order(scheduler, partial(self._fence_off, replacement))
        if len(replacement.heard) < len(self._cluster.judges) or self._down:
            return
        servers = map(server_name, range(self._scenario.servers))
        arrived = min(replacement.heard[name][0] for name in servers)
        first = max(max(1 + mark, clock) for mark, clock in replacement.heard.values())
        oracle = self._cluster.oracle
        if replacement.is_away:
            return
        if replacement.stays:
            oracle.lost_worker(worker, arrived, replacement.old.computed)
        elif not replacement.is_back:
            oracle.gone(worker, arrived)
            replacement.is_away = True
            if replacement.back_s is None:
                del self._replacing[worker]
                self._end_if_over()
            else:
                self._after(replacement.back_s, partial(self._come_back, replacement))
            return
        self._after(START_S, partial(self._start, replacement, first))

    def _come_back(self, left: Replacement) -> None:
        """A worker that had left takes part again: from where, the judges know."""
        worker = left.old.worker
        self._cluster.generation += 1
        replacement = Replacement(left.old, self._cluster.generation, False, None, is_back=True)
        self._replacing[worker] = replacement
        for judge in self._cluster.judges:
            self._order(judge, partial(self._fence_off, replacement))

    def _start(self, replacement: Replacement, first: int) -> None:
        worker = replacement.old.worker
        if self._replacing.get(worker) is not replacement:
            return
        del self._replacing[worker]
        self._away.pop(worker, None)
        self._cluster.start_worker(worker, replacement.generation, first)

    def _restart_server(self, server: int) -> None:
        """A server comes back from the last checkpoint while the workers go on."""
        assert self._stored is not None
        cluster, state = self._cluster, self._stored.states[server]
        cluster.generation += 1
        cluster.start_server(server, state, everyone=False)
        self._down.discard(server)
        self._came_back = True
        process = cluster.processes[server_name(server)]
        assert isinstance(process, ServerProcess)
        for worker in range(self._scenario.workers):
            present = cluster.processes[worker_name(worker)]
            assert isinstance(present, WorkerProcess)
            last = max(present.computed, cluster.oracle.computed.get(worker, -1))
            cluster.oracle.came_back(worker, state.watermarks[worker] + 1, last)
            process.fences[worker_name(worker)] = Fence(present.generation)
            # What has changed since the checkpoint.
            if worker in self._finished or worker in self._away:
                process.mailbox.put(Lost(worker, stays=False))
            elif worker in state.gone:
                process.mailbox.put(Rejoin(worker, 0))
        for replacement in self._replacing.values():
            replacement.heard.pop(process.name, None)
            self._order(process, partial(self._fence_off, replacement))
        cluster.tell_restarted(server, state.version)

    def finished(self, process: WorkerProcess) -> None:
        """A worker has left the run."""
        if self._cluster.processes.get(process.name) is process:
            self._finished.add(process.worker)
            if self._came_back:
                self._let_go(process.worker)
            self._end_if_over()

    def _end_if_over(self) -> None:
        """End the run when all workers have finished or left, and no server is known to be lost."""
        cluster = self._cluster
        never = {worker for worker, comes_back in self._away.items() if not comes_back}
        done = self._finished | (never - self._replacing.keys())
        if len(done) < self._scenario.workers or cluster.over.done:
            return
        if self._down or not all(judge.alive for judge in cluster.judges):
            self._after(0.1, self._end_if_over)
            return
        cluster.over.set(None)

    # -- checkpoints ---------------------------------------------------------------

    def _checkpoint_is_due(self) -> None:
        if self._cluster.over.done:
            return
        self._kernel.call_at(
            self._kernel.now + nanoseconds(self._scenario.checkpoint_s),
            lambda _: self._checkpoint_is_due(),
        )
        if not self._is_starting and not self._down:
            self._send(self._planner.begin())

    def _send(self, orders: Sequence[Order | GiveUp]) -> None:
        for order in orders:
            if isinstance(order, GiveUp) or order.number != self._planner.number:
                self._parts = {}
            process = self._cluster.processes.get(server_name(order.shard))
            if isinstance(process, ServerProcess) and process.alive:
                self._order(process, partial(_cut, order))

    def saved(self, server: ServerProcess, number: int, state: ShardState) -> None:
        """A server has written its part of a checkpoint."""
        shard = server.shard.index
        if self._planner.saved(number, shard, state.clock):
            states = [*({**self._parts, shard: state}[m] for m in range(self._scenario.servers))]
            self._cluster.oracle.checkpoint(states)
            self._stored = Stored(states, frozenset(self._cluster.oracle.may_miss))
            self._parts = {}
        elif number == self._planner.number and self._planner.is_open:
            self._parts[shard] = state

    def missed(self, server: ServerProcess, number: int, clock: int) -> None:
        """A server was past the clock of a checkpoint."""
        self._send(self._planner.missed(number, server.shard.index, clock))

    # -- messages ------------------------------------------------------------------

    def hears(self, process: Process, tell: Callable[[], None], after_s: float = 0.0) -> None:
        """Let the coordinator hear of a process, if that lives so long."""
        delay_s, attempt = self._cluster.draw.uniform(0.001, 0.01), self.attempt

        def sent() -> None:
            if process.alive and attempt == self.attempt:
                self._after(delay_s, heard)

        def heard() -> None:
            if self._cluster.processes.get(process.name) is process:
                tell()

        self._after(after_s, sent)

    def _order(self, judge: Judge, order: Callable[[Any], Any]) -> None:
        due = self._kernel.now + nanoseconds(self._cluster.draw.uniform(0.001, 0.01))
        due = judge.ordered = max(due, judge.ordered + 1)
        self._kernel.call_at(due, judge.orders.put, order)

    def _after(self, delay_s: float, function: Callable[[], None]) -> None:
        """Call a function later, in the same attempt."""
        attempt = self.attempt

        def call(_: Any) -> None:
            if attempt == self.attempt:
                function()

        self._kernel.call_at(self._kernel.now + nanoseconds(delay_s), call)


async def _cut(order: Order | GiveUp, server: ServerProcess) -> None:
    if isinstance(order, Order):
        server.cuts.ask(order.number, order.clock)
    else:
        server.cuts.give_up(order.number)
