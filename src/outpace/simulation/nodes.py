"""The nodes of a run with servers in virtual time: the contexts that programs run in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from outpace.blocks.block import Block
from outpace.cluster import RunTime
from outpace.errors import ProtocolError
from outpace.simulation.computing import Computing
from outpace.simulation.service_times import Service
from outpace.simulation.virtual import VirtualRun
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import SCHEDULER, Leave, Message, Reply, size_bytes, worker_name
from outpace.sync.programs.context import Stopped
from outpace.sync.shard import Shard


class VirtualNode:
    """The common part of the contexts of servers, workers and the scheduler."""

    def __init__(self, run: VirtualRun, name: str) -> None:
        self._kernel, self._network, self._name = run.kernel, run.network, name
        self.mailbox = mailbox = run.network.add(name)
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = mailbox.get
        self.recv_within: Callable[[float], Coroutine[Any, Any, Message | None]]
        self.recv_within = mailbox.get_within

    @property
    def now(self) -> Time:
        return self._kernel.now

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            self._network.send(self._name, to, message, size_bytes(message))

    def refuse(self, message: Message, error: ProtocolError) -> None:
        raise error


class ServerNode(VirtualNode):
    """The context of a server's program."""

    def __init__(self, run: VirtualRun, name: str, shard: Shard) -> None:
        super().__init__(run, name)
        self.shard = shard


class TimedServerNode(ServerNode):
    """The context of a server that needs time for each push and pull."""

    def __init__(self, run: VirtualRun, name: str, shard: Shard) -> None:
        super().__init__(run, name, shard)
        experiment = run.experiment
        self._service = Service(
            self._kernel,
            self.mailbox,
            experiment.seed,
            shard.index,
            experiment.push_time,
            experiment.pull_time,
        )
        self.recv, self.recv_within = self._service.next, self._service.next_within

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Reply):
                self._service.answer(message, partial(super().send, to))
            else:
                super().send(to, message)


class CutOffNode(VirtualNode):
    """The context of the program that cuts iterations off."""

    def __init__(self, run: VirtualRun) -> None:
        super().__init__(run, SCHEDULER)
        self.iteration_closed = run.recorder.iteration_closed


class WorkerNode(Computing, VirtualNode):
    """The context of a worker's program."""

    def __init__(
        self, run: VirtualRun, worker: int, servers: Sequence[str], run_time: RunTime
    ) -> None:
        VirtualNode.__init__(self, run, worker_name(worker))
        Computing.__init__(self, run, worker, run_time)
        self.servers = servers
        self.recv_nowait = self.mailbox.get_nowait
        seed = run.experiment.seed
        self._coins = RandomStream(seed, "coin", worker, lambda source, n: source.random(n))

    def send(self, to: str, *messages: Message) -> None:
        super().send(to, *messages)
        self._network.messages -= isinstance(messages[0], Leave)  # leaving costs nothing

    def initial_parameters(self) -> list[Block]:
        return self._run.parameters()

    def coin(self, iteration: int) -> float:
        return self._coins[iteration]

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        kernel, started = self._kernel, self._kernel.now
        duration = nanoseconds(self._run_time(self.worker, iteration, started))
        due = started + duration
        gradient = self._run.gradients.submit(parameters, self.worker, iteration, due)
        while message := await self.mailbox.get_within(seconds(max(0, due - kernel.now))):
            if ends_it(message):  # nothing refers to the gradient any more: never computed
                self._run.finished_step()
                layers = self._run.layers  # a real worker stops between two layers
                return Stopped((kernel.now - started) * layers // max(1, duration) / layers)
        self._has_computed()
        return gradient
