"""The processes of a simulated run, which can end, stand still, and compute more slowly."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from outpace.blocks.block import Block
from outpace.kernel import Kernel, Walker
from outpace.simulation.nodes import VirtualNode, WorkerNode, stopped
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, nanoseconds, seconds
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


async def computed(kernel: Kernel, process: Process, duration: Time) -> None:
    """Wait for so long (ns), and for as long as the process stands still meanwhile."""
    started, stood = kernel.now, process.stood
    while (left := started + duration + process.stood - stood - kernel.now) > 0:
        await kernel.sleep(seconds(left))


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


class FailingWorker(FailingNode):
    """The context of a worker's program, whose process may stand still or be slow."""

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        gradient = await self._compute(parameters, iteration, None)
        assert not isinstance(gradient, Stopped)
        return gradient

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        return await self._compute(parameters, iteration, ends_it)

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        await self._process.awake()
        self._process.computing = iteration, self._kernel.now
        await super().execute_in_parts(parameters, iteration, send)

    def _duration_s(self, iteration: int) -> float:
        return self._process.stretched(super()._duration_s(iteration))

    async def _pass(self, duration: Time) -> None:
        await computed(self._kernel, self._process, duration)

    async def _compute(
        self,
        parameters: Sequence[Block],
        iteration: int,
        ends_it: Callable[[Message], bool] | None,
    ) -> Sequence[Block | None] | Stopped:
        """Compute for the run time that the law gives, and for as long as the process stood still.

        ends_it: as in `execute_until`; None: messages wait until the gradient is done.
        """
        kernel, process = self._kernel, self._process
        await process.awake()
        started, stood = kernel.now, process.stood
        process.computing = iteration, started
        duration = nanoseconds(self._duration_s(iteration))
        gradient = self._run.gradients.submit(
            parameters, self.worker, iteration, started + duration
        )
        while True:
            left = max(0, started + duration + process.stood - stood - kernel.now)
            if ends_it is None:
                message = None
                await kernel.sleep(seconds(left))
            else:
                message = await self.mailbox.get_within(seconds(left))
                await process.awake()
            if message is None:
                if kernel.now >= started + duration + process.stood - stood:
                    break
            elif ends_it is not None and ends_it(message):
                self._run.finished_step()
                computed = kernel.now - started - (process.stood - stood)
                return stopped(computed, duration)
        self._has_computed()
        return gradient
