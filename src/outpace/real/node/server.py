"""A server process: a shard behind a listener."""

from __future__ import annotations

from dataclasses import replace

from outpace.blocks.block import Block, whole
from outpace.blocks.slicing import layers_within
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.engine.servers import most_unanswered, server_program
from outpace.errors import DivergenceError, ProtocolError
from outpace.kernel import Mailbox
from outpace.optim import Optimizer
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.real.control import changed
from outpace.real.net.block_frames import block_elements, head_of
from outpace.real.net.messages import (
    ChangePolicy,
    Fetch,
    Initialize,
    Plan,
    Ready,
    Snapshot,
    TakeSnapshot,
    WirePush,
)
from outpace.real.net.sparse_log import SparseLog
from outpace.real.net.translation import for_shard, wire_reply
from outpace.real.net.transport import Handlers
from outpace.real.net.turns import Turns
from outpace.real.net.zeromq.transport import LOOPBACK
from outpace.real.node.member import CoordinatorLink, Member
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync import Policy
from outpace.sync.conditions import Conditioned
from outpace.sync.messages import (
    Ack,
    Close,
    Leave,
    Message,
    Pull,
    Push,
    Reply,
    SetPolicy,
    WireMessage,
    worker_name,
)
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard


class Server(Member):
    """The process of server `index`, which owns the shard of the same number.

    Args:
        keys: public keys of the workers, by name.
        address: address to listen at.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        index: int,
        experiment: Experiment,
        keys: dict[str, str],
        address: str = LOOPBACK,
    ) -> None:
        super().__init__(link)
        self.index = index
        self._experiment = experiment
        self._followed = experiment.policies.initial()[index]
        self.shard: Shard | None = None
        self.messages = Mailbox[Message](self.kernel, f"the mailbox of {self.name}")
        self._block: tuple[str, int] | None = None  # dtype and elements, once planned
        self._asked: dict[int, int] = {}  # version -> the request for its snapshot
        pushes = experiment.policies.strategy.pushes_in_a_row
        self.turns = Turns(most_unanswered(experiment), pushes)
        self._waiting: set[str] = set()  # workers that want the initial parameters
        self.waiting_for_all: set[str] = set()  # workers that want the final ones
        self._has_initial = False
        self._initialized = Mailbox[tuple[Initialize, Block]](self.kernel, "worker-0's parameters")
        self._log = SparseLog(self.notice)
        self._numbers = {worker_name(worker): worker for worker in range(experiment.workers)}
        self.listener = self.transport.listen(
            address,
            {name: keys.get(name, "") for name in self._numbers},
            Handlers(self._expected, self._take, self._lost, all_finite),
        )

    def run(self) -> None:
        """Serve until the coordinator ends the run."""
        self.kernel.spawn(self._serve(), self.name)
        self.drive()

    async def _serve(self) -> None:
        self.join(endpoint=self.listener.endpoint)
        plan = await self.order(Plan)
        experiment = self._experiment
        part = plan.slices[self.index]
        self._block = plan.dtype, block_elements(plan.dtype, part)
        self.coordinator.send(Ready())  # to receive the initial parameters
        initialize, initial = await self._initialized.get()
        block = parameter_block(
            initial,
            self._optimizer(initialize),
            deterministic=experiment.deterministic,
            layers=layers_within(part, plan.layers),
        )
        policy = self._followed.policy
        self.shard = Shard(self.index, block, experiment.workers, policy, self.recorder)
        for name in self._waiting:
            self._send_parameters(name)
        await self.start_run()
        self.kernel.spawn(
            server_program(experiment)(_Context(self, self.shard)),
            f"{self.name}'s shard",
            daemon=True,
        )
        for at, server, policy in experiment.policies.later():
            if server == self.index:
                self.kernel.call_at(max(at, self.kernel.now), self._set_policy, policy)
        while True:
            read = await self.order(TakeSnapshot)
            if self.shard.version >= read.version:
                self._send_snapshot(read.request)
            else:
                self._asked[read.version] = read.request

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, ChangePolicy):
            self._follow(changed(self._followed, self._experiment, message))
        elif isinstance(message, Close):
            self.messages.put(message)
        else:
            super()._order(peer, message, block)

    def _set_policy(self, policy: Policy) -> None:
        self._follow(replace(self._followed, base=policy))

    def _follow(self, followed: Conditioned) -> None:
        """Change the policy after the messages that have already arrived."""
        self._followed = followed
        self.messages.put(SetPolicy(followed.policy))

    def _optimizer(self, asked: Initialize) -> Optimizer:
        """Return the configuration's optimizer, or the one that a script attached."""
        optimizer = self._experiment.optimizer
        if not asked.optimizer:
            return optimizer
        if isinstance(optimizer, PythonOptimizer):  # code named by the configuration
            return optimizer.of_groups(asked.groups, asked.settings)
        return TorchOptimizer(asked.optimizer, asked.groups, asked.settings)

    def finish(self) -> None:
        if self.shard is not None:
            self.shard.close(self.clock.now)
        super().finish()

    # -- incoming messages -------------------------------------------------------

    def _expected(self, _: str, message: WireMessage) -> tuple[str, int] | None:
        return self._block if isinstance(message, WirePush | Initialize) else None

    def _take(self, peer: str, received: WireMessage, block: Block | None) -> None:
        messages = for_shard(received, block)
        if messages:
            for message in messages:
                self._take_message(peer, message)
        elif isinstance(received, Fetch):
            if received.final and not self._all_left:
                self.waiting_for_all.add(peer)
            elif self.shard is None:
                self._waiting.add(peer)
            else:
                self._send_parameters(peer)
        elif isinstance(received, Initialize) and peer == worker_name(0) and not self._has_initial:
            assert block is not None
            self._has_initial = True
            self._initialized.put((received, whole(block)))
        else:
            self.listener.refuse(
                peer, f"{type(received).__name__} is not accepted from this worker now"
            )

    def _take_message(self, peer: str, message: Push | Pull | Leave) -> None:
        if message.worker != self._numbers[peer]:
            self.listener.refuse(peer, f"it speaks for worker {message.worker}")
        elif not self.turns.take(message):
            self.listener.refuse(peer, self.turns.objection)
        else:
            if isinstance(message, Push):
                self._require_finite(message)
            self.messages.put(message)

    def _require_finite(self, push: Push) -> None:
        """Drop a gradient that is not finite, or end the run; the worker should have refused it."""
        gradient = push.gradient
        if not isinstance(gradient, Gradient) or all_finite(gradient):
            return
        if self._experiment.non_finite == "stop":
            raise DivergenceError(
                f"worker {push.worker}'s gradient of iteration {push.iteration} is not finite; "
                "try a smaller learning rate"
            )
        self._log.note(
            f"a gradient of worker {push.worker} is not finite: {self.name} does not apply it"
        )
        push.gradient = push.settings = None

    def _lost(self, peer: str) -> None:
        pass  # the coordinator handles it: it knows whether the worker was done

    def _updated(self, shard: int, version: int) -> None:
        if version in self._asked:
            self._send_snapshot(self._asked.pop(version))

    @property
    def _all_left(self) -> bool:
        return self.shard is not None and self.shard.live == 0

    def answer_if_all_left(self) -> None:
        """Send the final parameters to the workers that wait for them."""
        if self._all_left:
            for peer in self.waiting_for_all:
                self._send_parameters(peer)
            self.waiting_for_all.clear()

    def _send_parameters(self, peer: str) -> None:
        self.listener.send(peer, *self._snapshot())

    def _send_snapshot(self, request: int) -> None:
        self.coordinator.send(*self._snapshot(request, self.recorder.totals.applied))

    def _snapshot(self, request: int = 0, applied: int = 0) -> tuple[Snapshot, Block]:
        shard = self.shard
        assert shard is not None
        block, now = shard.read(), self.clock.now
        return Snapshot(self.index, shard.version, request, now, applied, head_of(block)), block


class _Context:
    """The context of the server's program. Implements `ServerContext`."""

    def __init__(self, server: Server, shard: Shard) -> None:
        self.shard = shard
        self._server = server
        self._clock, self._listener = server.clock, server.listener
        self._totals = server.recorder.totals

    @property
    def now(self) -> Time:
        return self._clock.now

    async def recv(self) -> Message:
        self._before_receiving()
        while True:
            message = await self._server.messages.get()
            if self._may_be_heard(message):
                return message

    async def recv_within(self, timeout_s: float) -> Message | None:
        self._before_receiving()
        self._server.kernel.catch_up()  # the timeout starts now
        until = self.now + nanoseconds(timeout_s)
        while True:
            rest_s = seconds(max(0, until - self.now))
            message = await self._server.messages.get_within(rest_s)
            if message is None or self._may_be_heard(message):
                return message

    def _before_receiving(self) -> None:
        if self._server.waiting_for_all:
            self._server.answer_if_all_left()

    def _may_be_heard(self, message: Message) -> bool:
        """False if the sender has been refused since the message arrived."""
        if isinstance(message, SetPolicy | Close):  # sent by the coordinator
            return True
        assert isinstance(message, Push | Pull | Leave)
        return not self._listener.refused(worker_name(message.worker))

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            self._totals.messages += 1
            if isinstance(message, Ack):
                self._listener.send(to, message)
                continue
            assert isinstance(message, Reply)
            assert message.parameters is not None
            block = message.parameters
            self._server.turns.answered(message.worker, message.iteration)
            self._totals.bytes_sent += block.nbytes
            self._listener.send(to, wire_reply(message, block), block)

    def refuse(self, message: Message, error: ProtocolError) -> None:
        if isinstance(message, SetPolicy | Close):
            raise error
        assert isinstance(message, Push | Pull | Leave)  # sent by a worker
        self._listener.refuse(worker_name(message.worker), str(error))
