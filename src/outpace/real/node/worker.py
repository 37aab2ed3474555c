"""The process of a worker in a run with servers: it joins the run, and runs the program.

`ServerConnections` has its connections to the servers, and the messages of the program. The process
is the context of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outpace.blocks.block import Block, parameters_digest
from outpace.blocks.gathering import shares_until_ready
from outpace.blocks.packing import PHANTOM
from outpace.config.experiment import Experiment
from outpace.engine.scripts.redividing import Redivided
from outpace.engine.servers import has_scheduler, leaves_behind, worker_program
from outpace.kernel import Mailbox
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import ScriptState
from outpace.real.net.messages import Plan
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.server_connections import ServerConnections
from outpace.real.node.worker_process import Trainer, WorkerProcess, others_of
from outpace.record.timing import STOPPED
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import (
    SCHEDULER,
    Close,
    Leave,
    Message,
    Pause,
    Reply,
    WireMessage,
)
from outpace.sync.programs.context import SendPart, Stopped

if TYPE_CHECKING:
    from outpace.real.script.script_saver import ScriptSaver


class ServedWorker(WorkerProcess):
    """The process of a worker with servers. Implements `WorkerContext`.

    Methods of other objects are bound once, because the program calls them for each message.
    """

    def __init__(self, link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
        super().__init__(link, worker, experiment)
        self.first_iteration: int | None = None  # iteration to begin with in the middle of a run
        self.kept: ScriptState | None = None  # state of its script
        # the division of scripts, if the checkpoint had another number of workers
        self.redivided: Redivided | None = None
        self.has_ended = False  # True if its script had ended at the checkpoint
        self.keeping: ScriptSaver | None = None  # saver of its script's state
        self._experiment = experiment
        self.tells_pauses = leaves_behind(experiment)
        self._kept_bytes = 0  # state that the coordinator sends
        name = f"what {self.name}'s script kept"
        self._kept_states = Mailbox[ScriptState](self.kernel, name)
        coins = RandomStream(experiment.seed, "coin", worker, lambda source, n: source.random(n))
        self.coin = coins.__getitem__
        self._blocks: Sequence[Block] = []  # blocks with which the program begins
        self._slices: Sequence[slice] = []  # slice of the flat parameters, for each of these blocks
        to_servers = self._to_servers = ServerConnections(self, experiment)
        self.servers, self._mailbox = to_servers.names, to_servers.mailbox
        self.send, self.recv = to_servers.send, self._mailbox.get
        self.recv_several = self._mailbox.get_several
        self.optimizer_state = to_servers.optimizer_state
        self.replace_optimizer_state = to_servers.replace_optimizer_state

    # -- course of the run ------------------------------------------------------------

    async def work(self, trainer: Trainer) -> None:
        """Join the run, connect to the servers, agree on the initial parameters, train."""
        self.trainer = trainer
        (parameters,) = trainer.cut([slice(0, sum(trainer.layers))])
        digest = parameters_digest([parameters])
        plan = await self.join_run(digest=digest, dtype=head_of(parameters).dtype)
        self._slices = plan.slices
        self._blocks = trainer.cut(plan.slices)
        self._to_servers.connect(plan, self._blocks)
        if self.worker == 0 and not plan.late:
            self._to_servers.initialize(self._blocks)
        elif plan.late or digest != plan.digest:
            self._blocks = await self._to_servers.parameters(final=False)
        await self.agree_on_buffers(gives=self.worker == 0 and not plan.late)
        if plan.first:
            self.first_iteration = plan.first[self.worker]
        self.has_ended = self.worker in plan.ended
        self.redivided = others_of(plan)
        if self._kept_bytes:
            self.kept = await self._kept_states.get()
        self._to_servers.timed_from = self.first_iteration or 0
        await self.start_run()
        await worker_program(self._experiment)(self)

    async def probe(self, budget: Time) -> None:
        await self._to_servers.probe(budget)

    @property
    def pushed(self) -> int:
        return 1 + self._to_servers.last_pushed

    def _end_times(self) -> None:
        self._to_servers.times.close()

    # -- what a script asks for -------------------------------------------------------------

    async def leave(self, *, fetch: bool) -> list[Block]:
        # The program remains suspended and sends no more messages.
        self._tell_all(Leave(self.worker))
        parameters: list[Block] = []
        if fetch:
            parameters = await self._to_servers.parameters(final=True)
        self._to_servers.has_left = True
        return parameters

    def pause(self) -> None:
        """Tell servers and scheduler that the script waits in one of its own collectives."""
        self._tell_all(Pause(self.worker))

    def resume(self) -> None:
        """Tell them that the script continues; only after `pause`."""
        self._tell_all(Pause(self.worker, over=True))

    def _tell_all(self, message: Leave | Pause) -> None:
        """Tell the servers, and the scheduler if there is one."""
        for name in self.servers + [SCHEDULER] * has_scheduler(self._experiment):
            self.send(name, message)

    # -- the context of the program: messages ----------------------------------------------

    def recv_nowait(self) -> Message | None:
        if not len(self._mailbox):
            self.kernel.catch_up()  # handles messages that arrived during the computation
        return self._mailbox.get_nowait()

    async def recv_within(self, timeout_s: float) -> Message | None:
        self.kernel.catch_up()  # the timeout starts now
        return await self._mailbox.get_within(timeout_s)

    # -- the context of the program: gradients ---------------------------------------------

    def initial_parameters(self) -> list[Block]:
        return list(self._blocks)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        """See `WorkerContext`.

        If the configuration has a law of run times, the computation takes the drawn time.
        """
        started = self.now
        duration_s = self.draw_s(iteration, started)

        def is_over() -> bool:
            while message := self._mailbox.get_nowait():
                if ends_it(message):
                    return True
            return False

        gradient = await self.trainer.gradient(parameters, iteration, self.rate_limited(is_over))
        if not isinstance(gradient, Stopped):
            rest_s = duration_s and max(0.0, duration_s - self.worked_s(started))
            if not duration_s or not await self._is_ended_within(rest_s, ends_it):
                self.computed(iteration, started)
                return gradient
        if self.is_recorded(iteration):
            self.span_of(STOPPED, iteration, started, self.now)
        if not duration_s:
            assert isinstance(gradient, Stopped)
            return gradient
        return Stopped(min(duration_s, self.worked_s(started)) / duration_s)

    async def _is_ended_within(self, rest_s: float, ends_it: Callable[[Message], bool]) -> bool:
        """Let the rest of a drawn time pass; True if a message ends it earlier."""
        self.kernel.catch_up()
        if not self.trainer.stops:  # so a computation of this duration would not be ended either
            await self.kernel.sleep(rest_s)
            return False
        end = self.now + nanoseconds(rest_s)
        while message := await self.recv_within(seconds(max(0, end - self.now))):
            if ends_it(message):
                return True
        return False

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        """See `WorkerContext`.

        If the configuration has a law of run times, the parts are sent when they are complete in
        virtual time, but not before the whole gradient is computed.
        """
        started, servers = self.now, range(len(self._slices))
        duration_s = self.draw_s(iteration, started)
        sent: set[int] = set()
        gradient: Sequence[Block | None] | Stopped

        def send_now(server: int, part: Block | None) -> None:
            sent.add(server)
            send(server, part)

        if duration_s:
            gradient = await self.trainer.gradient(parameters, iteration)
            assert not isinstance(gradient, Stopped), "nothing ends this computation"
            shares = shares_until_ready(self._slices, self._experiment.forward_share)
            for share, server in sorted(zip(shares, servers, strict=True)):
                self.kernel.catch_up()
                rest_s = share * duration_s - self.worked_s(started)
                if rest_s > 0:
                    await self.kernel.sleep(rest_s)
                send_now(server, gradient[server])
        else:
            gradient = await self.trainer.gradient_in_parts(parameters, iteration, send_now)
        self.computed(iteration, started)
        for server in servers:
            if server not in sent:
                send(server, gradient[server])

    # -- messages of the coordinator -----------------------------------------------------

    def _expected(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, Reply):  # the scheduler's, without parameters
            return PHANTOM, 0
        if isinstance(message, ScriptState) and self._kept_bytes:
            return "uint8", self._kept_bytes
        return super()._expected(peer, message)

    def _order(self, peer: str, message: WireMessage) -> None:
        if isinstance(message, Plan) and message.kept:
            self._kept_bytes = message.kept[self.worker]
        if isinstance(message, Close | Reply):
            self._mailbox.put(message)
        elif isinstance(message, ScriptState):
            self._kept_states.put(message)
        elif self.keeping is None or not self.keeping.take(message):
            super()._order(peer, message)
