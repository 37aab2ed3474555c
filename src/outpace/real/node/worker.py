"""The process of a worker in a run with servers.

It joins the run, connects to the servers, and runs the program with a trainer. Its parts are in
`served_worker/`: `Connections` has those to the servers, `Inbox` the messages for the
program, `Sending` sends its messages, and `ProcessContext` offers all of that to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from outpace.blocks.block import Block, parameters_digest, whole
from outpace.config.experiment import Experiment
from outpace.engine.narrowing import is_narrow
from outpace.engine.scripts.redividing import Redivided
from outpace.engine.servers import (
    has_scheduler,
    tells_pauses,
    worker_program,
)
from outpace.errors import RunError
from outpace.kernel import Mailbox
from outpace.optim.torch_optimizers import State
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import ScriptState
from outpace.real.net.membership_messages import Fenced
from outpace.real.net.messages import (
    PHANTOM,
    OptimizerState,
    Plan,
    Refused,
    Snapshot,
    WireReply,
)
from outpace.real.net.probe_messages import ProbeAnswer
from outpace.real.net.translation import reply_of
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.probing import ProbeOfServers
from outpace.real.node.served_worker.connections import Connections
from outpace.real.node.served_worker.context import ProcessContext
from outpace.real.node.served_worker.inbox import Inbox
from outpace.real.node.served_worker.requests import Requests
from outpace.real.node.served_worker.sending import Sending
from outpace.real.node.timing import RequestTimes
from outpace.real.node.worker_process import Trainer, WorkerProcess, others_of
from outpace.support.units import Time
from outpace.sync.messages import (
    SCHEDULER,
    Abort,
    Ack,
    Leave,
    Pause,
    Resume,
    WireMessage,
    server_name,
)


class ServedWorker(WorkerProcess):
    """The process of a worker with servers."""

    def __init__(self, link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
        super().__init__(link, worker, experiment)
        self.first_iteration: int | None = None  # to begin with in the middle of a run
        self.kept: tuple[torch.Tensor, ScriptState] | None = None  # what its script kept
        self.redivided: Redivided | None = None  # if there were other workers at the checkpoint
        self.has_ended = False  # its script had come to its end at the checkpoint
        # Returns True if an order of the coordinator is about checkpoints.
        self.take_checkpoint: Callable[[WireMessage], bool] = lambda message: False
        self._experiment = experiment
        self.tells_pauses = tells_pauses(experiment)
        self._has_scheduler = has_scheduler(experiment)
        self._servers: list[str] = []  # names of those with which the run begins
        self._kept_bytes = 0  # that the coordinator sends
        name = f"what {self.name}'s script kept"
        self._kept_states = Mailbox[tuple[torch.Tensor, ScriptState]](self.kernel, name)
        self._has_left = False  # its script has left, and has the final parameters if it wants them
        self._times = RequestTimes(self.timing, worker)
        self._probe = ProbeOfServers(self.kernel, worker, self._times)
        self._inbox = Inbox(self.kernel, self.name)
        self._to_servers = Connections(
            self.name,
            self.transport,
            is_narrow=is_narrow(experiment),
            on_message=self._take,
            is_done=lambda: self._is_done,
        )
        self._connections = self._to_servers.by_name
        self._requests = Requests(self.kernel, self._connections)
        self._sending = Sending(
            self.coordinator, self._to_servers, self.recorder, self._times, self.is_recorded
        )

    # -- course of the run ------------------------------------------------------------

    async def work(self, trainer: Trainer) -> None:
        """Join the run, connect to the servers, agree on the initial parameters, train."""
        self.trainer = trainer
        (parameters,) = trainer.cut([slice(0, sum(trainer.layers))])
        digest = parameters_digest([parameters])
        plan = await self.join_run(
            digest=digest,
            dtype=head_of(parameters).dtype,
        )
        blocks = trainer.cut(plan.slices)
        self._servers = [server_name(server) for server in range(len(blocks))]
        heads = [head_of(block) for block in blocks]
        lengths = list(map(trainer.lengths, range(len(blocks))))
        self._to_servers.connect(plan, heads, lengths)
        self._times.connected(len(heads))
        if self.worker == 0 and not plan.late:
            for server, block in enumerate(blocks):
                message = trainer.initialize(server, block)
                self._connections[server_name(server)].caller.send(message, block)
            if initial_state := trainer.initial_state():
                self.replace_optimizer_state(initial_state)
        elif plan.late or digest != plan.digest:
            blocks = await self._requests.parameters(final=False)
        if not plan.late:
            await self.agree_on_buffers()
        if plan.first:
            self.first_iteration = plan.first[self.worker]
        self.has_ended = self.worker in plan.ended
        self.redivided = others_of(plan)
        if self._kept_bytes:
            self.kept = await self._kept_states.get()
        self._sending.begin(trainer.settings, self.first_iteration or 0)
        context = ProcessContext(
            self,
            self._inbox,
            self._sending,
            self._experiment,
            servers=self._servers,
            first_iteration=self.first_iteration,
            blocks=blocks,
            slices=plan.slices,
        )
        await self.start_run()
        await worker_program(self._experiment)(context)

    def gradient_memory(self, block: int, elements: int, dtype: torch.dtype) -> torch.Tensor | None:
        name = self._servers[block] if block < len(self._servers) else ""
        connection = self._connections.get(name)
        return None if connection is None else connection.caller.memory(elements, dtype)

    async def probe(self, budget: Time) -> None:
        callers = [connection.caller for connection in self._connections.values()]
        await self._probe.run(budget, callers)

    @property
    def pushed(self) -> int:
        return 1 + self._sending.last_pushed

    def _end_times(self) -> None:
        self._times.close()

    # -- what a script asks for -------------------------------------------------------------

    async def leave(self, *, fetch: bool) -> list[Block]:
        # The program stays suspended and sends nothing more.
        self._tell_all(Leave(self.worker))
        parameters: list[Block] = []
        if fetch:
            parameters = await self._requests.parameters(final=True)
        self._has_left = True
        return parameters

    def pause(self) -> None:
        """Tell servers and scheduler that the script waits in a collective of its own."""
        self._tell_all(Pause(self.worker))

    def resume(self) -> None:
        """Tell them that the script goes on; only after `pause`."""
        self._tell_all(Resume(self.worker))

    def _tell_all(self, message: Leave | Pause | Resume) -> None:
        """Tell the servers, and the scheduler if there is one."""
        for name in self._servers + [SCHEDULER] * self._has_scheduler:
            self._sending.send(name, message)

    async def optimizer_state(self) -> list[dict[int, State]]:
        """Return the state of the servers' optimizers."""
        self.kernel.catch_up()
        return await self._requests.optimizer_state()

    def replace_optimizer_state(self, states: Sequence[Mapping[int, State]]) -> None:
        """Replace the state of the servers' optimizers, before the next push arrives there.

        states: one for each server.
        """
        self._requests.replace_optimizer_state(states)

    # -- messages of the coordinator -----------------------------------------------------

    def _expected(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, WireReply):  # the scheduler's, without parameters
            return PHANTOM, 0
        if isinstance(message, ScriptState) and self._kept_bytes:
            return "uint8", self._kept_bytes
        return super()._expected(peer, message)

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, Plan) and message.kept:
            self._kept_bytes = message.kept[self.worker]
        if isinstance(message, Abort):
            self._inbox.mailbox.put(message)
        elif isinstance(message, WireReply):
            self._inbox.mailbox.put(reply_of(message, block))
        elif isinstance(message, ScriptState):
            data = whole(block) if block is not None else None
            assert isinstance(data, torch.Tensor)
            self._kept_states.put((data, message))
        elif not self.take_checkpoint(message):
            super()._order(peer, message, block)

    # -- messages of the servers -----------------------------------------------------------

    def _take(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, WireReply):
            if self._times.count:
                self._times.arrived(message.shard, message.iteration, message.block.nbytes)
            self._inbox.mailbox.put(reply_of(message, block))
        elif isinstance(message, ProbeAnswer) and self._probe.take(message):
            pass
        elif isinstance(message, Ack):
            self._inbox.mailbox.put(message)
        elif isinstance(message, Snapshot | OptimizerState):
            self._requests.take(message, block)
        elif isinstance(message, Fenced):
            if not (self._is_done or self._has_left):
                raise self.was_replaced()
        elif isinstance(message, Refused):
            raise RunError(f"{peer} refused {self.name}: {message.reason}")
        else:
            raise RunError(f"{peer} sent {self.name} a {type(message).__name__}")
