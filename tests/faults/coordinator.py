"""The coordinator of a simulated cluster: it takes checkpoints and replaces what is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.faults.oracle import Violation
from tests.faults.processes import Judge, Process, ServerProcess, WorkerProcess

from outpace.support.units import nanoseconds, seconds
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order, Take, Whole
from outpace.sync.checkpoint.state import ShardState, aligned, first_iteration
from outpace.sync.membership.decide import Membership
from outpace.sync.membership.events import (
    AllBegin,
    BeginAgain,
    CheckpointComplete,
    Confirmed,
    DeadlinePassed,
    EndRun,
    Event,
    Finished,
    Kill,
    Loss,
    ProcessEnded,
    ProcessesLost,
    Removed,
    Replace,
    Rules,
    Start,
    TrainingBegan,
    WorkerBegan,
)
from outpace.sync.membership.events import Order as MemberOrder
from outpace.sync.membership.fence import Fence
from outpace.sync.messages import SCHEDULER, Lost, server_name, worker_name

if TYPE_CHECKING:
    from tests.faults.cluster import Cluster
    from tests.faults.oracle import Pair

DETECTED_S = 0.005  # from the end of a process until the coordinator knows
START_S = 0.1  # from the order to start a process until it runs
LOOK_S = 0.02  # of a server: whether all workers have left
RULES = Rules(fence_s=20.0, start_s=20.0)  # no failure of a scenario lasts longer


@dataclass(frozen=True)
class Stored:
    """A checkpoint that is whole, what was missing when it was taken, and how much was counted."""

    states: list[ShardState]
    missing: frozenset[Pair]
    updates_lost: int


class Coordinator:
    """One for all attempts of a run: it does not fail. `attempt` rises when all begin again.

    `sync.membership` decides about workers; here its orders are carried out.

    Attributes:
        result: the states that the servers hand in at the end, by shard.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._kernel = cluster, cluster.kernel
        self._scenario = cluster.scenario
        self.attempt = 0
        policy = cluster.policy
        has_scheduler = policy.scheduler is not None or policy.cut_off is not None
        rules = replace(RULES, on_loss=self._scenario.on_loss)
        self._members = Membership(rules, [SCHEDULER] if has_scheduler else [])
        self._checkpoints = 1  # so many: a run begins again at its beginning, too
        self._stored: Stored | None = None
        self._planner = CutPlanner(self._servers(), cluster.strategy.exact)
        self._parts: dict[int, ShardState] = {}
        self._is_starting = False
        self._after(self._scenario.checkpoint_s, self._checkpoint_is_due)

    # -- attempts ------------------------------------------------------------------

    def begin(self, stored: Stored | None) -> None:
        """Start all processes, from a checkpoint or from the beginning."""
        cluster, scenario = self._cluster, self._scenario
        begin = AllBegin(scenario.workers, scenario.servers, checkpoint=self._checkpoints)
        self._tell(begin)
        self._tell(TrainingBegan())
        self._reached: dict[int, dict[str, int]] = {n: {} for n in range(scenario.workers)}
        self._done: set[int] = set()  # workers that have finished, or have left for good
        self._finished: set[int] = set()
        self.result: dict[int, ShardState] = {}
        self._is_starting = self._is_ending = False
        states = None
        if stored is not None:
            states = stored.states
            if cluster.policy.cut_off is not None:
                states = aligned(states)
            cluster.oracle.went_back(states, stored.missing, stored.updates_lost)
        else:
            cluster.oracle.begin()
        cluster.start_servers(states)
        self._planner = CutPlanner(self._servers(), cluster.strategy.exact, self._planner.number)
        self._parts = {}
        for order in self._planner.begin(states[0].clock if states else 0):
            assert isinstance(order, Take)
            server = cluster.processes[order.part]
            assert isinstance(server, ServerProcess)
            server.cuts.ask(order.number, order.clock)
        for worker in range(scenario.workers):
            first = None if states is None else first_iteration(worker, states)
            cluster.start_worker(worker, 0, first)

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

    def lost(self, process: Process) -> None:
        """A process has ended, or is not heard any more."""
        if self._cluster.processes.get(process.name) is not process:
            return
        if isinstance(process, ServerProcess):
            if self._cluster.over.done:
                return
            process.end()
        elif isinstance(process, WorkerProcess):
            self._note_loss(process.worker)
            process.is_lost = True
        loss = Loss(process.name, "is lost", has_ended=not process.alive)
        self._tell(ProcessesLost([loss]))

    def _note_loss(self, worker: int) -> None:
        oracle = self._cluster.oracle
        leaves = self._scenario.on_loss == "continue" and worker not in self._finished
        if (
            leaves
            and worker in oracle.computed
            and self._members.table.can_spare(worker_name(worker))
        ):
            oracle.leaves(worker)

    def ended(self, process: Process) -> None:
        """A process has ended: the launcher says so after a moment, if it is the present one."""

        def tell() -> None:
            if self._cluster.processes.get(process.name) is process:
                assert isinstance(process, WorkerProcess)
                self._tell(ProcessEnded(process.worker))

        self._after(DETECTED_S, tell)

    def _tell(self, event: Event) -> None:
        """Carry out what the membership decides."""
        self._do(self._members.take(event, self._kernel.now))

    def _do(self, orders: Sequence[MemberOrder]) -> None:
        cluster, oracle = self._cluster, self._cluster.oracle
        for order in orders:
            match order:
                case Replace():
                    judge = cluster.processes[order.server]
                    assert isinstance(judge, Judge)
                    self._order(judge, partial(self._fence_off, order))
                case Kill(worker):
                    process = cluster.processes[worker_name(worker)]
                    assert isinstance(process, WorkerProcess)
                    self._kernel.call_at(
                        max(self._kernel.now, process.killable_at), self._kill, process
                    )
                case Start(worker):
                    process = cluster.processes[worker_name(worker)]
                    assert isinstance(process, WorkerProcess)
                    if worker in oracle.computed:
                        arrived = self._arrived(worker)
                        oracle.lost_worker(worker, arrived, process.computed, order.first)
                    oracle.updates_lost += order.lost
                    self._after(START_S, partial(self._start, order))
                case Removed(worker, lost):
                    oracle.updates_lost += lost
                    if worker not in self._finished:
                        oracle.gone(worker, self._arrived(worker))
                        self._done.add(worker)
                        self._end_if_over()
                case BeginAgain():
                    self.restart_all()
                    return
                case EndRun(reason, lost):
                    if not lost:
                        oracle.ended(reason, self._finished)
                    self.restart_all()  # the user resumes it
                    return
        if (due := self._members.table.next_deadline) is not None and orders:
            attempt = self.attempt
            self._after(seconds(max(0, due - self._kernel.now)), lambda: self._look(attempt))

    def _look(self, attempt: int) -> None:
        if attempt == self.attempt and self._members.take(DeadlinePassed(), self._kernel.now):
            raise Violation("a wait of the membership has reached its limit")

    def _arrived(self, worker: int) -> int:
        """Return the last iteration of a worker that all servers have."""
        return min(self._reached[worker].values())

    def _kill(self, process: WorkerProcess) -> None:
        process.end()
        self.ended(process)

    async def _fence_off(self, order: Replace, judge: Judge) -> None:
        """In the process of a judge: hear only the next process of the worker."""
        worker, name = order.worker, worker_name(order.worker)
        if judge.fences[name].generation != order.generation:
            judge.fences[name] = Fence(order.generation)
        await judge.settled()
        progress = judge.progress(worker)
        self._put(judge, Lost(worker, order.stays))
        await judge.settled()
        if order.stays:
            progress = judge.progress(worker)
        self.hears(judge, partial(self._confirmed, order, *progress))

    def _put(self, judge: Judge, lost: Lost) -> None:
        judge.mailbox.put(lost)

    def _confirmed(self, order: Replace, watermark: int, clock: int) -> None:
        if order.server != SCHEDULER:
            self._reached[order.worker][order.server] = watermark
        self._tell(Confirmed(order.server, order.worker, order.generation, watermark, clock))

    def _start(self, order: Start) -> None:
        if self._members.table.workers[order.worker].generation == order.generation:
            old = self._cluster.processes[worker_name(order.worker)]
            if old.alive and self._scenario.on_loss == "restart":
                raise Violation(f"{old.name} is started while its old process is alive")
            self._cluster.start_worker(order.worker, order.generation, order.first)

    def began(self, process: WorkerProcess) -> None:
        """A worker is ready to begin."""
        if self._members.table.workers[process.worker].is_starting:
            self._tell(WorkerBegan(process.worker))

    # -- the end -------------------------------------------------------------------

    def finished(self, process: WorkerProcess) -> None:
        """A worker has done all its iterations, and said so to the servers."""
        if self._cluster.processes.get(process.name) is process:
            self._tell(Finished(process.name))
            self._finished.add(process.worker)
            self._done.add(process.worker)
            process.may_end = True
            self._end_if_over()

    def _end_if_over(self) -> None:
        """When all workers have finished or left, ask the servers for what they have."""
        if len(self._done) < self._scenario.workers:
            return
        for server in range(self._scenario.servers):
            process = self._cluster.processes[server_name(server)]
            assert isinstance(process, ServerProcess)
            if server not in self.result:
                self._order(process, self._hand_in)

    async def _hand_in(self, server: ServerProcess) -> None:
        server.run(self._handing_in(server))

    async def _handing_in(self, server: ServerProcess) -> None:
        """In the process of a server: hand in the parameters once all workers have left."""
        while server.shard.live:
            await self._kernel.sleep(LOOK_S)
            await server.awake()
        state = server.shard.state()
        self.hears(server, partial(self.handed_in, server.shard.index, state))

    def handed_in(self, shard: int, state: ShardState) -> None:
        """A server has handed in its parameters: the run is over with the last of them."""
        self.result[shard] = state
        if len(self.result) == self._scenario.servers and not self._cluster.over.done:
            self._cluster.over.set(None)

    # -- checkpoints ---------------------------------------------------------------

    def _checkpoint_is_due(self) -> None:
        if self._cluster.over.done:
            return
        self._kernel.call_at(
            self._kernel.now + nanoseconds(self._scenario.checkpoint_s),
            lambda _: self._checkpoint_is_due(),
        )
        if not self._is_starting:
            self._send(self._planner.begin())

    def _servers(self) -> list[str]:
        return [server_name(server) for server in range(self._scenario.servers)]

    def _send(self, orders: Sequence[Order]) -> None:
        for order in orders:
            assert not isinstance(order, Whole)
            if isinstance(order, GiveUp) or order.number != self._planner.number:
                self._parts = {}
            process = self._cluster.processes.get(order.part)
            if isinstance(process, ServerProcess) and process.alive:
                self._order(process, partial(_cut, order))

    def saved(self, server: ServerProcess, number: int, state: ShardState) -> None:
        """A server has written its part of a checkpoint."""
        shard = server.shard.index
        if self._planner.saved(number, server.name, state.clock):
            states = [*({**self._parts, shard: state}[m] for m in range(self._scenario.servers))]
            self._cluster.oracle.checkpoint(states)
            oracle = self._cluster.oracle
            self._stored = Stored(states, frozenset(oracle.may_miss), oracle.updates_lost)
            self._parts = {}
            self._checkpoints += 1
            self._tell(CheckpointComplete(self._checkpoints))
        elif number == self._planner.number and self._planner.is_open:
            self._parts[shard] = state

    def missed(self, server: ServerProcess, number: int, clock: int) -> None:
        """A server was past the clock of a checkpoint."""
        self._send(self._planner.missed(number, server.name, clock))
        if self._planner.is_due:
            self._send(self._planner.begin())

    # -- messages ------------------------------------------------------------------

    def hears(self, process: Process, tell: Callable[[], None], after_s: float = 0.0) -> None:
        """Let the coordinator hear of a process, if that lives so long."""
        delay_s, attempt = self._cluster.draw.uniform(0.001, 0.01), self.attempt

        def sent() -> None:
            if process.alive and attempt == self.attempt:
                due = max(self._kernel.now + nanoseconds(delay_s), process.heard_at + 1)
                process.heard_at = due
                self._after(seconds(due - self._kernel.now), heard)

        def heard() -> None:
            if self._cluster.processes.get(process.name) is process:
                tell()

        self._after(after_s, sent)

    def let_hear(self, judge: Judge) -> None:
        """Tell a judge which generations of workers it hears when it starts."""
        for worker in range(self._scenario.workers):
            judge.fences[worker_name(worker)] = Fence(
                self._members.table.workers[worker].generation
            )

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


async def _cut(order: Take | GiveUp, server: ServerProcess) -> None:
    if isinstance(order, Take):
        server.cuts.ask(order.number, order.clock)
    else:
        server.cuts.give_up(order.number)
