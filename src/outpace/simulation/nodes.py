"""The contexts of programs in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from outpace.blocks.block import Block
from outpace.blocks.gathering import shares_until_ready
from outpace.errors import ProtocolError
from outpace.predict.interface import Wait
from outpace.simulation.life import Send
from outpace.simulation.virtual import VirtualRun
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, seconds
from outpace.sync.messages import SCHEDULER, Message, worker_name
from outpace.sync.programs.context import SendPart, Stopped
from outpace.sync.shard import Shard


class VirtualNode:
    """The common part of the contexts of servers, workers and the scheduler."""

    def __init__(self, run: VirtualRun, name: str) -> None:
        self.name, self._kernel = name, run.kernel
        self.clock = run.kernel
        self._process = process = run.life.process(name)
        node = run.network.join(name)
        self.mailbox = mailbox = node.mailbox
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = process.receiving(mailbox.get)
        self.recv_within: Callable[[float], Coroutine[Any, Any, Message | None]]
        self.recv_within = process.receiving(mailbox.get_within)
        # like `send`, even if `send` is replaced
        self._post: Send = partial(run.network.send, node)
        self.send: Send = self._post

    @property
    def now(self) -> Time:
        return self._kernel.now

    def refuse(self, message: Message, error: ProtocolError) -> None:
        raise error


class ServerNode(VirtualNode):
    """The context of a server's program."""

    def __init__(self, run: VirtualRun, name: str, shard: Shard) -> None:
        super().__init__(run, name)
        self.shard = shard


class CutOffNode(VirtualNode):
    """The context of the program of a scheduler without a shard. Decisions take no time."""

    def __init__(self, run: VirtualRun) -> None:
        super().__init__(run, SCHEDULER)
        self.iteration_closed = run.recorder.iteration_closed

    async def decide(self, decision: Callable[[], Wait]) -> Wait:
        return decision()


class WorkerNode(VirtualNode):
    """The context of a worker's program.

    Args:
        first: the iteration to begin with in the middle of a run; None: the run has just begun.
    """

    def __init__(
        self,
        run: VirtualRun,
        worker: int,
        servers: Sequence[str],
        first: int | None,
    ) -> None:
        super().__init__(run, worker_name(worker))
        process = self._process
        self._run = run
        self.worker, self.servers, self.first_iteration = worker, servers, first
        self.computation = computation = run.body.computation(run, worker, process)
        self.execute, self.must_stop = computation.execute, computation.must_stop
        self.iteration_finished = computation.iteration_finished
        self.send = computation.sending(self._post)
        self.recv_nowait = self.mailbox.get_nowait
        self.recv_several: Callable[[int], Coroutine[Any, Any, Sequence[Message]]]
        self.recv_several = process.receiving(self.mailbox.get_several)
        experiment = run.experiment
        shares = shares_until_ready(run.slices, experiment.forward_share)
        # Times when the servers' parts are complete, in the order in which backward makes the
        # parts.
        self._parts = sorted((share, server) for server, share in enumerate(shares))
        coins = RandomStream(experiment.seed, "coin", worker, lambda source, n: source.random(n))
        self.coin = coins.__getitem__

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        computation = self.computation
        duration = await computation.begin(parameters, iteration, self._parts[0][0])
        spent: Time = 0
        gradient: Sequence[Block | None] | None = None
        for share, server in self._parts:
            left = round(share * duration) - spent
            if left > 0:
                await self._kernel.sleep_ns(left)
                spent += left
            if gradient is None:
                gradient = await computation.gradient()
            send(server, gradient[server])
        computation.has_computed()

    def initial_parameters(self) -> list[Block]:
        return self._run.parameters()

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        computation = self.computation
        duration = await computation.begin(parameters, iteration)
        if not computation.is_abortable:  # as in a real run, the worker computes to the end
            await self._kernel.sleep_ns(duration)
            return await computation.end()
        computed = await self._spend_until(duration, ends_it)
        if computed is None:
            return await computation.end()
        computation.cut_off()
        return Stopped(computed / max(1, duration))

    async def _spend_until(self, duration: Time, ends_it: Callable[[Message], bool]) -> Time | None:
        """Let the time of a computation pass (ns), or until a message ends the computation.

        Returns:
            The share that has passed; None: all of it.
        """
        kernel, started = self._kernel, self._kernel.now
        while True:
            left = started + duration - kernel.now
            message = await self.mailbox.get_within(seconds(left))
            if message is None:
                return None
            if ends_it(message):
                return kernel.now - started
