"""The processes of a simulated run, which can end, stand still, and compute more slowly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from outpace.blocks.block import Block
from outpace.kernel import Kernel, Walker
from outpace.simulation.nodes import Computing, VirtualNode, WorkerNode
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, seconds
from outpace.sync.messages import Lost, Message
from outpace.sync.programs.context import SendPart, Stopped

T = TypeVar("T")


class Process:
    """One process. Another one that takes its place has an object of its own."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self.walker: Walker | None = None
        self.alive = True
        self.has_finished = False  # its program has come to its end
        self.until: Time = 0  # it stands still until then
        self.silent_since: Time = 0  # the last time that it began to be silent
        self.stood: Time = 0  # for so long in all, including what is still to come
        self.computing: tuple[int, Time] | None = None  # its last iteration, and when it began it
        self._kernel = kernel
        self._slow_until: Time = 0
        self._factor = 1.0

    def end(self) -> None:
        """Kill it."""
        self.alive = False
        if self.walker is not None:
            self._kernel.end(self.walker)

    def stand_still(self, duration: Time) -> None:
        """Stop it for so long (ns). Pauses that overlap do not add up."""
        begin, end = max(self._kernel.now, self.until), self._kernel.now + duration
        if end > begin:
            self.stood += end - begin
            self.until = end

    def slow_down(self, factor: float, until: Time) -> None:
        """Compute so many times as long in iterations that begin before that time (ns)."""
        self._factor, self._slow_until = factor, until

    def stretched(self, duration_s: float) -> float:
        """Return how long the computation takes that begins now, in seconds."""
        return duration_s * (self._factor if self._kernel.now < self._slow_until else 1.0)

    async def awake(self) -> None:
        """Wait until it does not stand still."""
        while self._kernel.now < self.until:
            await self._kernel.sleep(seconds(self.until - self._kernel.now))

    async def spend(self, duration: Time) -> None:
        """Wait for so long (ns), and for as long as it stands still meanwhile."""
        kernel, started, stood = self._kernel, self._kernel.now, self.stood
        while (left := started + duration + self.stood - stood - kernel.now) > 0:
            await kernel.sleep(seconds(left))


class _Order(NamedTuple):
    """The coordinator's order to a server; obeyed: called when the program has processed it."""

    message: Message
    obeyed: Callable[[], None]


class Obedient:
    """Makes the context of a server or of the scheduler one of a process that may fail.

    It takes orders of the coordinator, which wait in the mailbox behind what has arrived before.
    """

    def __init__(self, kernel: Kernel, node: VirtualNode, process: Process) -> None:
        self._kernel, self._node, self._process = kernel, node, process
        self._recv, self._recv_within, self._send = node.recv, node.recv_within, node.send
        self._obeyed: Callable[[], None] | None = None
        node.recv, node.recv_within = self._next, self._next_within
        node.send = self._send_awake  # type: ignore[method-assign]

    def order(self, lost: Lost, obeyed: Callable[[], None]) -> None:
        """Tell the server that a worker's process is lost."""
        order: Any = _Order(lost, obeyed)
        self._node.mailbox.put(order)

    async def _next(self) -> Message:
        self._report()
        await self._process.awake()
        message = await self._recv()
        await self._process.awake()
        return self._opened(message)

    async def _next_within(self, timeout_s: float) -> Message | None:
        self._report()
        await self._process.awake()
        message = await self._recv_within(timeout_s)
        await self._process.awake()
        return None if message is None else self._opened(message)

    def _report(self) -> None:
        """The program asks for the next message: it has processed the last one."""
        obeyed, self._obeyed = self._obeyed, None
        if obeyed is not None:
            obeyed()

    def _opened(self, message: Any) -> Message:
        if not isinstance(message, _Order):
            read: Message = message
            return read
        self._obeyed = message.obeyed
        return message.message

    def _send_awake(self, to: str, *messages: Message) -> None:
        """Send at once, or when the server does not stand still any more."""
        if self._process.until <= self._kernel.now:
            self._send(to, *messages)
            return
        self._kernel.call_at(self._process.until, partial(self._send_late, to), messages)

    def _send_late(self, to: str, messages: Sequence[Message]) -> None:
        if self._process.alive:
            self._send_awake(to, *messages)


class FailingNode(WorkerNode):
    """The part about messages of the context of a worker whose process may stand still."""

    def __init__(
        self,
        run: VirtualRun,
        worker: int,
        servers: Sequence[str],
        first: int | None,
        process: Process,
    ) -> None:
        super().__init__(run, worker, servers, first)
        self._process = process
        mailbox = self.mailbox
        self.recv = partial(self._awake_after, mailbox.get)
        self.recv_within = partial(self._awake_after, mailbox.get_within)
        self.recv_nowait = mailbox.get_nowait
        self.recv_several = self._next_alone

    async def _awake_after(
        self, received: Callable[..., Coroutine[Any, Any, T]], *arguments: float
    ) -> T:
        """Return what is received, once the process does not stand still."""
        message = await received(*arguments)
        await self._process.awake()
        return message

    async def _next_alone(self, count: int) -> Sequence[Message]:
        return [await self.recv()]

    async def _spend_until(self, duration: Time, ends_it: Callable[[Message], bool]) -> Time | None:
        kernel, process = self._kernel, self._process
        started, stood = kernel.now, process.stood
        while True:
            left = max(0, started + duration + process.stood - stood - kernel.now)
            message = await self.mailbox.get_within(seconds(left))
            await process.awake()
            computed = kernel.now - started - (process.stood - stood)
            if message is None:
                if computed >= duration:
                    return None
            elif ends_it(message):
                return computed


class FailingComputing(Computing):
    """The part about gradients of the context of a worker whose process may stand still or be slow.

    A computation takes the run time that the law gives, and as long as the process stands still.
    """

    _process: Process

    async def _awake(self, iteration: int) -> None:
        """Begin an iteration, once the process does not stand still."""
        await self._process.awake()
        self._process.computing = iteration, self._kernel.now

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        await self._awake(iteration)
        return await super().execute(parameters, iteration)

    def _duration_s(self, iteration: int) -> float:
        return self._process.stretched(super()._duration_s(iteration))

    def _spend(self, duration: Time) -> Awaitable[None]:
        return self._process.spend(duration)


class FailingWorker(FailingComputing, FailingNode):
    """The context of a worker's program, whose process may stand still or be slow."""

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        await self._awake(iteration)
        return await super().execute_until(parameters, iteration, ends_it)

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        await self._awake(iteration)
        await super().execute_in_parts(parameters, iteration, send)
