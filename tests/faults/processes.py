"""Processes of a simulated cluster: they can be killed and stand still; and what connects them.

A connection carries messages in order, as TCP does. A message has the generation of its sender and
a serial number. The receiver hears only the generation that it expects, and each number once.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from outpace.kernel import Future, Kernel, Mailbox, Walker
from outpace.support.units import nanoseconds, seconds
from outpace.sync.checkpoint.cuts import Cuts, place_of
from outpace.sync.membership.fence import Fence
from outpace.sync.messages import Leave, Push, Reply, server_name, worker_name
from outpace.sync.programs.context import Stopped
from outpace.sync.shard import Shard

if TYPE_CHECKING:
    from tests.faults.cluster import Cluster


_OVERTAKEN_S: Final = 0.1


class Process:
    """A process with a mailbox. generation: rises with each process of this name."""

    def __init__(self, cluster: Cluster, name: str, generation: int) -> None:
        self.cluster, self.kernel, self.name = cluster, cluster.kernel, name
        self.generation, self.alive, self.drops = generation, True, False
        self.killable_at = 0  # an order to kill it has no effect before
        self.heard_at = 0  # when the last message to the coordinator arrives
        self.mailbox: Mailbox[Any] = Mailbox(cluster.kernel, name)
        self.fences: dict[str, Fence] = {}  # by the name of the sender
        self._walkers: list[Walker] = []
        self._stands_still: Future[None] | None = None

    @property
    def clock(self) -> Kernel:
        return self.kernel

    @property
    def now(self) -> int:
        return self.kernel.now

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        self._walkers.append(self.kernel.spawn(body, self.name, daemon=True))

    def end(self, *, drops: bool = False) -> None:
        """Kill it. drops: what it has sent and has not arrived is lost."""
        self.alive, self.drops = False, drops
        for walker in self._walkers:
            self.kernel.end(walker)

    def freeze(self) -> None:
        if self._stands_still is None:
            self._stands_still = Future(self.kernel, f"{self.name} to wake up")

    def thaw(self) -> None:
        if self._stands_still is not None:
            self._stands_still.set(None)
            self._stands_still = None

    @property
    def stands_still(self) -> bool:
        return self._stands_still is not None

    async def awake(self) -> None:
        while self._stands_still is not None:
            await self._stands_still

    async def recv(self) -> Any:
        message = await self.mailbox.get()
        await self.awake()
        return message

    def recv_nowait(self) -> Any:
        return self.mailbox.get_nowait()

    async def recv_within(self, timeout_s: float) -> Any:
        message = await self.mailbox.get_within(timeout_s)
        await self.awake()
        return message

    def send(self, to: str, *messages: Any) -> None:
        for message in messages:
            self.cluster.network.carry(self, self.cluster.peer(self, to), message)

    def refuse(self, message: Any, error: Exception) -> None:
        raise error


class Network:
    """Carries messages between processes."""

    def __init__(self, cluster: Cluster, draw: random.Random) -> None:
        self._cluster, self._draw = cluster, draw
        self._sent: dict[tuple[Process, Process], int] = {}
        self._arrives: dict[tuple[Process, Process], int] = {}
        self._latency_s = cluster.scenario.latency_s
        self.slow_until = 0
        self.partitions: dict[Process, int] = {}  # process -> until
        self.tampers: dict[str, str] = {}  # name -> lose, lose last, repeat, overtake

    def carry(self, sender: Process, receiver: Process | None, message: Any) -> None:
        if receiver is None:
            return
        if isinstance(message, Reply) and isinstance(message.parameters, torch.Tensor):
            self._cluster.oracle.reply(message)
        link = sender, receiver
        serial = self._sent[link] = self._sent.get(link, -1) + 1
        tampered = self.tampers.get(sender.name, "")
        if tampered == "lose last" and not isinstance(message, Leave):
            tampered = ""
        if tampered:
            del self.tampers[sender.name]
        if tampered.startswith("lose"):  # a connection that loses something is broken
            at = self._due(link) + nanoseconds(0.02)
            self._cluster.kernel.call_at(at, self._cluster.coordinator.unreachable, sender)
            return
        carried = link, serial, message
        if tampered == "overtake":  # its place in the order is that of those that follow it
            late = self._due(link) + nanoseconds(_OVERTAKEN_S)
            self._cluster.kernel.call_at(late, self._deliver, carried)
            return
        for _ in range(2 if tampered == "repeat" else 1):
            self._cluster.kernel.call_at(self._due(link), self._deliver, carried)

    def _due(self, link: tuple[Process, Process]) -> int:
        now = self._cluster.kernel.now
        factor = 20.0 if now < self.slow_until else 1.0
        due = now + nanoseconds(factor * self._draw.uniform(0.001, self._latency_s))
        due = max(due, self._arrives.get(link, 0) + 1)
        for process in link:
            due = max(due, self.partitions.get(process, 0))
        self._arrives[link] = due
        return due

    def _deliver(self, carried: tuple[tuple[Process, Process], int, Any]) -> None:
        link, serial, message = carried
        sender, receiver = link
        until = max(self.partitions.get(process, 0) for process in link)
        if until > self._cluster.kernel.now:  # it was on its way when the partition began
            self._arrives[link] = max(until, self._arrives[link]) + 1
            self._cluster.kernel.call_at(self._arrives[link], self._deliver, carried)
            return
        if not receiver.alive or (sender.drops and not sender.alive):
            return
        fence = receiver.fences.setdefault(sender.name, Fence(sender.generation))
        match fence.verdict(sender.generation, serial):
            case "due":
                fence.take()
                receiver.mailbox.put(message)
            case "old":  # it is told that another process has taken its place
                self._cluster.kernel.call_at(self._due((receiver, sender)), self._end, sender)
            case "early" | "unknown":
                self._cluster.coordinator.unreachable(sender)

    def _end(self, process: Process) -> None:
        process.end()
        self._cluster.coordinator.ended(process)


class Judge(Process):
    """A server or a scheduler: it obeys the coordinator."""

    def __init__(self, cluster: Cluster, name: str, generation: int) -> None:
        super().__init__(cluster, name, generation)
        self.orders: Mailbox[Any] = Mailbox(cluster.kernel, f"orders of {name}")
        self.ordered = 0  # when the last order arrives
        self.run(self._obey())
        cluster.coordinator.let_hear(self)

    async def _obey(self) -> None:
        while True:
            order = await self.orders.get()
            await self.awake()
            await order(self)

    async def settled(self) -> None:
        """Wait until the program has processed all that has arrived."""
        await self.kernel.sleep(0)
        while len(self.mailbox) or self.stands_still:
            await self.awake()
            await self.kernel.sleep(0)

    def progress(self, worker: int) -> tuple[int, int]:
        """Return the watermark of a worker, and the clock."""
        return -1, 0


class ServerProcess(Judge):
    """A server, or a scheduler that lets workers through: a shard behind its program."""

    def __init__(self, cluster: Cluster, name: str, generation: int, shard: Shard) -> None:
        super().__init__(cluster, name, generation)
        self.shard = shard
        self.cuts = Cuts(lambda: place_of(self.shard), self._save, self._missed)

    def progress(self, worker: int) -> tuple[int, int]:
        return self.shard.watermark(worker), self.shard.clock

    def _save(self, number: int) -> None:
        state = self.shard.state()
        self.cluster.oracle.state(state)
        tell = partial(self.cluster.coordinator.saved, self, number, state)
        self.cluster.coordinator.hears(self, tell, self.cluster.draw.uniform(0.0, 0.05))

    def _missed(self, number: int, clock: int) -> None:
        self.cluster.coordinator.hears(
            self, partial(self.cluster.coordinator.missed, self, number, clock)
        )


class WorkerProcess(Process):
    """A worker: it computes for a random time."""

    def __init__(
        self, cluster: Cluster, worker: int, generation: int, first: int | None = None
    ) -> None:
        super().__init__(cluster, worker_name(worker), generation)
        self.worker, self.first_iteration = worker, first
        self.servers = [server_name(server) for server in range(cluster.scenario.servers)]
        self.connected: dict[str, Process] = {}
        self.computed = -1 if first is None else first - 1
        self.is_lost = False  # True once the coordinator counts it as lost
        self.may_end = False  # True once the coordinator knows that it has finished

    def initial_parameters(self) -> list[Any]:
        size = self.cluster.scenario.workers * self.cluster.scenario.iterations
        return [torch.zeros(size, dtype=torch.float64) for _ in self.servers]

    def coin(self, iteration: int) -> float:
        return random.Random(f"{self.cluster.scenario.seed} {self.worker} {iteration}").random()

    def must_stop(self, iteration: int) -> bool:
        return iteration >= self.cluster.scenario.iterations

    def send(self, to: str, *messages: Any) -> None:
        for message in messages:
            if isinstance(message, Push) and message.gradient is not None:
                assert isinstance(message.gradient, torch.Tensor)
                message.gradient = message.gradient.clone()
        super().send(to, *messages)

    async def recv_several(self, count: int) -> Any:
        return [await self.recv()]

    async def execute(self, parameters: Any, iteration: int) -> Any:
        return await self.execute_until(parameters, iteration, None)

    async def execute_until(self, parameters: Any, iteration: int, ends_it: Any) -> Any:
        scenario, oracle = self.cluster.scenario, self.cluster.oracle
        is_current = self.cluster.processes.get(self.name) is self
        if is_current and not self.is_lost:
            oracle.starts(self.worker, iteration, parameters)
        draw = random.Random(f"{scenario.seed} {self.worker} {iteration} {self.generation}")
        until = self.now + nanoseconds(draw.lognormvariate(-3, 0.7))
        if ends_it is None:
            await self.kernel.sleep(seconds(until - self.now))
            await self.awake()
        else:
            while (
                message := await self.recv_within(seconds(max(0, until - self.now)))
            ) is not None:
                if ends_it(message):
                    return Stopped(0.5)
        self.computed = max(self.computed, iteration)
        if is_current and self.worker in oracle.computed:
            oracle.computed[self.worker] = max(oracle.computed[self.worker], iteration)
        gradient = torch.zeros(scenario.workers, scenario.iterations, dtype=torch.float64)
        gradient[self.worker, iteration] = 1.0
        return [gradient.flatten() for _ in self.servers]

    async def execute_in_parts(self, parameters: Any, iteration: int, send: Any) -> None:
        """Send the part of the last server first, and each of the others a while later."""
        gradient = await self.execute(parameters, iteration)
        draw = random.Random(f"{self.cluster.scenario.seed} {self.worker} {iteration} parts")
        for server in reversed(range(len(self.servers))):
            send(server, gradient[server])
            await self.kernel.sleep(draw.choice((0.0, 0.01, 0.05)))
            await self.awake()

    def prepare(self, iteration: int) -> None:
        pass

    def iteration_finished(self, *_: Any) -> None:
        pass


class SchedulerProcess(Judge):
    """The scheduler of a run with cut-offs."""

    async def decide(self, decision: Any) -> Any:
        return decision()

    def iteration_closed(self, *_: Any) -> None:
        pass
