"""A worker process: the program over connections to all servers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeAlias

from outpace.blocks.block import Block, StepSettings, whole
from outpace.blocks.digest import parameters_digest
from outpace.config.experiment import Experiment
from outpace.engine.servers import has_scheduler, worker_program
from outpace.errors import RunError
from outpace.kernel import Mailbox
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import (
    PHANTOM,
    Fetch,
    Go,
    Initialize,
    Plan,
    Ready,
    Refused,
    Snapshot,
    WireAbort,
    WireAck,
    WireDone,
    WireLeave,
    WireMessage,
    WirePull,
    WirePush,
    WireReply,
)
from outpace.real.net.translation import for_worker
from outpace.real.net.transport import Caller, Handlers
from outpace.real.node.member import CoordinatorLink, Lost
from outpace.real.node.task import TaskGradients, task_of
from outpace.real.node.trainee import Trainee
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import (
    SCHEDULER,
    Abort,
    Done,
    Leave,
    Message,
    Pull,
    Push,
    server_name,
    size_bytes,
)
from outpace.sync.programs.context import Stopped
from outpace.tasks import Workload
from outpace.tasks.abort_points import AbortPoints

EndsIt: TypeAlias = Callable[[Message], bool]


class Worker(Trainee):
    """Subclasses say what it trains. The context of the program."""

    def __init__(self, link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
        super().__init__(link, worker, self._expected)
        self.servers: list[str] = []
        self._train = worker_program(experiment)
        self._has_scheduler = has_scheduler(experiment)
        self._mailbox = Mailbox[Message](self.kernel, f"the mailbox of {self.name}")
        self.snapshots = Mailbox[tuple[int, Block]](self.kernel, "the servers' parameters")
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = self._mailbox.get
        self._callers: dict[str, Caller] = {}
        self._blocks: list[Block] = []
        self._coins = RandomStream(
            experiment.seed, "coin", worker, lambda source, n: source.random(n)
        )

    # -- what is trained ----------------------------------------------------------

    @abstractmethod
    def cut(self, slices: Sequence[slice]) -> list[Block]:
        """From now on exchange one block per slice; these are the initial ones."""

    @abstractmethod
    def initialize(self, server: int, block: Block) -> Initialize:
        """What worker 0 tells server m to start from."""

    @abstractmethod
    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """Compute the gradient, one block for each server; None: abstain."""

    @abstractmethod
    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: EndsIt
    ) -> Sequence[Block | None] | Stopped:
        """The same, unless a message comes that ends it."""

    # -- its part in the run ---------------------------------------------------------

    def run(self) -> None:
        """Work until there is nothing left to do, or the coordinator says stop."""
        self.kernel.spawn(self.work(), self.name)
        self.drive()

    async def work(self) -> None:
        """Join, find the servers, agree on the initial parameters, train."""
        layers = self.layers
        whole = self.cut([slice(0, sum(layers))])
        digest = parameters_digest(whole)
        dtype = head_of(whole[0]).dtype
        self.join(
            layout=self.layout,
            digest=digest,
            layers=layers,
            dtype=dtype,
            buffer_bytes=self.extras.numel(),
        )
        plan = await self.order(Plan)
        self._blocks = self.cut(plan.slices)
        self._call(plan)
        if self.worker == 0:
            for server, block in enumerate(self._blocks):
                message = self.initialize(server, block)
                self._callers[server_name(server)].send(message, block)
        elif digest != plan.digest:
            await self._fetch()
        await self.agree_on_extras()
        self.coordinator.send(Ready())
        self.start_clock(await self.order(Go))
        self.kernel.spawn(self.report(), f"{self.name}'s report", daemon=True)
        await self._train(self)

    def _call(self, plan: Plan) -> None:
        for server, (endpoint, block) in enumerate(zip(plan.endpoints, self._blocks, strict=True)):
            name = server_name(server)
            self.servers.append(name)
            self._callers[name] = self.transport.call(
                name,
                endpoint,
                plan.keys[server] if plan.keys else "",
                Handlers(_expect(server, block), self._take, self._lost),
            )

    async def _fetch(self) -> None:
        """Take the servers' parameters: worker 0 has others than this one."""
        for caller in self._callers.values():
            caller.send(Fetch())
        for _ in self._callers:
            shard, block = await self.snapshots.get()
            self._blocks[shard] = block

    # -- the context of the program ----------------------------------------------------

    def initial_parameters(self) -> list[Block]:
        return list(self._blocks)

    def coin(self, iteration: int) -> float:
        return self._coins[iteration]

    def recv_nowait(self) -> Message | None:
        if not len(self._mailbox):
            self.kernel.catch_up()  # takes in what came while this process computed
        return self._mailbox.get_nowait()

    async def recv_within(self, timeout_s: float) -> Message | None:
        self.kernel.catch_up()  # the time counts from now
        return await self._mailbox.get_within(timeout_s)

    def send(self, to: str, *messages: Message) -> None:
        caller = self.coordinator if to == SCHEDULER else self._callers[to]
        match messages:
            case (Push() as push, Pull() as pull) if push.iteration == pull.iteration:
                self._send_push(caller, push, pull.coin)
            case _:
                for message in messages:
                    self._send_one(caller, message)

    def _send_one(self, caller: Caller, message: Message) -> None:
        match message:
            case Push():
                self._send_push(caller, message, None)
            case Pull(worker, iteration, coin):
                self.recorder.totals.messages += 1
                caller.send(WirePull(worker, iteration, coin))
            case Leave(worker):
                caller.send(WireLeave(worker))
            case Done(worker, iteration, seconds, share, finished):
                self.recorder.totals.messages += 1
                caller.send(WireDone(worker, iteration, seconds, share, finished))
            case _:
                raise AssertionError(f"a worker does not send {message}")

    def _send_push(self, caller: Caller, push: Push, coin: float | None) -> None:
        """With the coin of the pull that comes right after it, if one does."""
        totals = self.recorder.totals
        totals.messages += 1 if coin is None else 2
        totals.bytes_sent += size_bytes(push)
        gradient = push.gradient
        head = None if gradient is None else head_of(gradient)
        message = WirePush(push.worker, push.iteration, push.version, head, coin)
        settings = self.settings()
        if settings is not None and gradient is not None:
            message.settings, message.unused = settings.groups, settings.unused
        caller.send(message, gradient)

    def settings(self) -> StepSettings | None:
        """The optimizer's, to travel with a push; None: as they were at the start."""
        return None

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_server: int,
    ) -> None:
        self.recorder.iteration_finished(
            self.worker,
            iteration,
            started,
            computed,
            finished,
            min(held, finished - computed),
            last_server,
        )

    async def stretch_until(
        self, started: Time, duration_s: float, ends_it: EndsIt
    ) -> Stopped | None:
        """The same, but not beyond a message that ends it."""
        self.kernel.catch_up()
        until = started + nanoseconds(duration_s)
        while message := await self._mailbox.get_within(seconds(max(0, until - self.now))):
            if ends_it(message):
                return Stopped(min(1.0, seconds(self.now - started) / duration_s))
        return None

    def looked_for(self, ends_it: EndsIt) -> Callable[[], bool]:
        """Has a message come that ends it? To be asked often."""

        def look() -> bool:
            while message := self._mailbox.get_nowait():
                if ends_it(message):
                    return True
            return False

        return self.now_and_then(look)

    def send_leave(self) -> None:
        """Tell all who count on this worker that it is done."""
        for name in self.servers + [SCHEDULER] * self._has_scheduler:
            self.send(name, Leave(self.worker))

    @property
    def callers(self) -> Collection[Caller]:
        """The connections to the servers."""
        return self._callers.values()

    # -- what comes in -------------------------------------------------------------------

    def _expected(self, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, WireReply):  # the scheduler's, without parameters
            return PHANTOM, 0
        return self.expected_extras(message)

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, WireAbort):
            self._mailbox.put(Abort(message.iteration))
        elif isinstance(message, WireReply):
            self._mailbox.put(for_worker(message, block))
        else:
            super()._order(peer, message, block)

    def _take(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, WireReply | WireAck):
            self._mailbox.put(for_worker(message, block))
        elif isinstance(message, Snapshot):
            assert block is not None
            self.snapshots.put((message.shard, whole(block)))
        elif isinstance(message, Refused):
            raise RunError(f"{peer} refused {self.name}: {message.reason}")
        else:
            raise RunError(f"{peer} sent {self.name} a {type(message).__name__}")

    def _lost(self, peer: str) -> None:
        raise Lost(self.name, peer)


class TaskWorker(Worker):
    """Trains the task of a configuration."""

    def __init__(
        self, link: CoordinatorLink, worker: int, experiment: Experiment, workload: Workload
    ) -> None:
        super().__init__(link, worker, experiment)
        self._workload = workload
        self._gradients = TaskGradients(self, experiment, workload)
        self._abort_points = AbortPoints(workload.model)

    def must_stop(self, iteration: int) -> bool:
        return self._gradients.is_over(iteration)

    @property
    def layout(self) -> str:
        return self._gradients.layout

    @property
    def layers(self) -> list[int]:
        return list(self._workload.layers)

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._workload.cut(slices)
        return self._workload.initial_parameters()

    def initialize(self, server: int, block: Block) -> Initialize:
        return Initialize("", [], [], head_of(block))

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        return await self._gradients.execute(parameters, iteration)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: EndsIt
    ) -> Sequence[Block | None] | Stopped:
        started = self.now
        drawn_s = self._gradients.drawn_s(iteration, started)
        with self._abort_points.stopping_at(self.looked_for(ends_it)) as computation:
            gradient = self._gradients.at(parameters, iteration)
        if computation.stopped:
            done_s = seconds(self.now - started)
            return Stopped(min(1.0, done_s / drawn_s) if drawn_s else computation.share)
        if drawn_s and (stopped := await self.stretch_until(started, drawn_s, ends_it)):
            return stopped
        self.recorder.gradient_computed(self.worker)
        return gradient


def _expect(server: int, block: Block) -> Callable[[str, WireMessage], tuple[str, int] | None]:
    """Only the block of this server may come, and only from it."""
    head = head_of(block)
    due = head.dtype, head.elements

    def expected(_: str, message: WireMessage) -> tuple[str, int] | None:
        named = isinstance(message, WireReply | Snapshot) and message.shard == server
        return due if named else None

    return expected


def task_worker(link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
    """Run worker `worker` of this configuration; what goes wrong is told to the coordinator."""
    workload = task_of(link, experiment)
    if workload is not None:
        TaskWorker(link, worker, experiment, workload).run()
