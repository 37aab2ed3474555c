"""A server process: a shard behind a listener."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic_ns
from typing import Any, Final, TypeAlias

import torch

from outpace.blocks.block import Block, Value, whole
from outpace.blocks.division import Division
from outpace.blocks.slicing import layers_of, layers_within
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.engine.adapting import adaptive_policy
from outpace.engine.narrowing import is_narrow
from outpace.engine.scripts.optimizer_state import lengths_of
from outpace.engine.servers import (
    most_unanswered,
    pushes_in_a_row,
    returns_alone,
    server_program,
    why_servers_stay,
)
from outpace.errors import DivergenceError
from outpace.kernel import Future
from outpace.optim import Optimizer
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import State, TorchOptimizer, TorchSteps
from outpace.real.control import changed
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.block_frames import block_elements, head_of, on_the_wire
from outpace.real.net.inbox import Inbox, Turns
from outpace.real.net.membership_messages import (
    ReplaceWorker,
    RunHasWorkers,
    ServerBack,
    WorkerRejoined,
    WorkerReplaced,
)
from outpace.real.net.messages import (
    ChangePolicy,
    Fetch,
    FetchState,
    Initialize,
    OptimizerState,
    Plan,
    Ready,
    ScriptOptimizer,
    Snapshot,
    TakeSnapshot,
    WirePush,
)
from outpace.real.net.moving_messages import HandOver
from outpace.real.net.probe_messages import Probe
from outpace.real.net.sparse_log import SparseLog
from outpace.real.net.translation import for_shard, wire_reply
from outpace.real.net.transport import FIRST, Handlers
from outpace.real.node.checkpoint_writer import CheckpointWriter, saved_policy, saved_state
from outpace.real.node.member import CoordinatorLink, Member
from outpace.real.node.moving_server import Around, ServerMoves
from outpace.real.node.optimizer_state import bytes_due, entries_of, state_from
from outpace.real.node.script_parts import ScriptParts
from outpace.real.node.serving.probes import ProbeAnswers
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.support.units import Time, nanoseconds
from outpace.sync import Policy
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.conditions import Conditioned
from outpace.sync.messages import (
    Ack,
    Close,
    GoOver,
    Message,
    Pull,
    Push,
    Rejoin,
    Reply,
    SetPolicy,
    SetWorkers,
    WireMessage,
    worker_name,
)
from outpace.sync.parameter_block import TensorBlock, no_memory, parameter_block
from outpace.tasks import Script

_Request: TypeAlias = Fetch | FetchState | OptimizerState  # about the part of a server

_OF_SHARD: Final = Push | Pull
_LAST_MESSAGES_S: Final = 0.5  # to take in what a lost worker has sent
_LOOK_S: Final = 0.001


class Server(Member):
    """The process of server `index`, with the shard of that number. Implements `ServerContext`.

    Args:
        keys: public keys of the workers, by name.
        address: address to listen at.
        resume: folder of the checkpoint from which the run goes on; None: it begins.
        alone: True if the workers have gone on, and only this server goes back to the checkpoint.
        joins: True if the others train already, and this server gets its part from them.
        copies: True if the folder is not seen from here: the coordinator has what is needed of it.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        index: int,
        experiment: Experiment,
        keys: dict[str, str],
        address: str = LOOPBACK,
        resume: Path | None = None,
        alone: bool = False,
        joins: bool = False,
        copies: bool = False,
    ) -> None:
        super().__init__(link)
        self.index, self._is_alone = index, alone
        self._resume, self._copies = resume, copies
        self._times = ServiceTimes(self.timing, index)
        self._experiment = experiment
        self._followed = experiment.policies.initial()[0 if joins else index]
        self.shard: TimedShard
        self._is_ready = False  # True once there is the shard
        self._moves: ServerMoves | None = None  # if servers may join and leave
        self._plan: Plan
        self._joins = joins
        self._block: tuple[str, int] | None = None  # dtype and elements, once planned
        self._asked: dict[int, int] = {}  # version -> the request for its snapshot
        self._want_initial: set[str] = set()  # workers that wait for the initial parameters
        self._want_final: set[str] = set()  # workers that wait until all have left
        # Requests of workers that are at the next division already, by worker and kind.
        self._early: dict[tuple[str, type[WireMessage]], tuple[_Request, Block | None]] = {}
        self._script: ScriptParts | None = None  # the optimizer of a script
        self._initialized = Future[tuple[Initialize, Block]](self.kernel, "worker-0's parameters")
        self._steps: TorchSteps | None = None  # of a script's optimizer
        self._lengths: dict[int, int] = {}  # of the pieces of parameters in the block
        self._given_state = Future[dict[int, State]](self.kernel, "the optimizer's state")
        self._all_left_at: Time | None = None
        self._taken: Message | None = None  # the last message of the shard
        self._log = SparseLog(self.notice)
        self._is_narrow = is_narrow(experiment)
        self._new_memory = no_memory if self.memory is None else self.memory.empty
        if self._is_narrow:  # then its parameters are not sent as they are
            self._new_memory = no_memory
        names = [worker_name(worker) for worker in range(experiment.workers)]
        self.listener = self.transport.listen(
            address,
            {name: keys.get(name, "") for name in names},
            # Losses are the coordinator's concern: it knows whether the worker was done.
            Handlers(self._expected_of_worker, self._take, lambda _: None, all_finite),
        )
        self._probes = ProbeAnswers(
            index,
            names,
            self._times,
            lambda: experiment.probe and self._is_ready and not self.has_started,
            self.listener.send,
        )
        self._checkpoints = CheckpointWriter(
            self.clock, lambda: self.shard, lambda: self.recorder.totals, self.coordinator.send
        )
        self._turns = Turns(most_unanswered(experiment), pushes_in_a_row(experiment))
        self._inbox = Inbox(self.kernel, self.listener, self.name, self._turns)
        self.refuse = self._inbox.refuse

    async def serve(self) -> None:
        """Join the run, wait for the initial parameters, serve until the run ends."""
        self.join(endpoint=self.listener.endpoint)
        plan = self._plan = await self.order(Plan)
        if isinstance(self._experiment.task, Script):
            self._script = ScriptParts(plan.layers)
        if self._joins:
            await self._serve_others(plan)
            return
        experiment = self._experiment
        part = plan.slices[self.index]
        self._block = plan.dtype, block_elements(plan.dtype, part)
        saved: ShardState | None = None
        parameters: Block
        if self._resume is not None:
            saved = await self._saved_state(self._resume)
        initialize: Initialize | None = None
        made: ScriptOptimizer | None = None
        if self._is_alone:
            assert saved is not None
            parameters = _copy(saved.parameters)
            if isinstance(experiment.task, Script):
                made = await self.order(ScriptOptimizer)
                self._lengths = lengths_of(made.groups)
        else:
            self.coordinator.send(Ready())  # to receive the initial parameters
            initialize, parameters = await self._initialized
            if initialize.optimizer:
                made = ScriptOptimizer(initialize.optimizer, initialize.settings, initialize.groups)
                if returns_alone(experiment):
                    self.coordinator.send(made)
        if made is not None and self._script is not None:
            self._script.learn(made.optimizer, made.settings, made.groups)
        block = parameter_block(
            parameters,
            self._optimizer(made),
            deterministic=experiment.deterministic,
            layers=layers_within(part, plan.layers),
            new_memory=self._new_memory,
        )
        if isinstance(block, TensorBlock) and isinstance(block.take_step, TorchSteps):
            self._steps = block.take_step
            if initialize is not None and initialize.has_state:
                self._steps.load(await self._given_state)
        policy = self._followed.policy
        self.shard = TimedShard(self.index, block, experiment.workers, policy, self.recorder)
        self.shard.times = self._times
        adaptive = adaptive_policy(experiment)
        if adaptive is not None and adaptive.measures_noise:
            self.shard.measure_noise(self.recorder.noise_measured)
        self._is_ready = True
        for name in self._want_initial:
            self._send_parameters(name)
        self._let_move(Division.of_slices(plan.slices), self.shard)
        await self.start_run()
        if saved is not None:
            self.shard.restore(saved, self.clock.now, everyone=not self._is_alone)
        self._start_program()
        for at, server, policy in experiment.policies.later():
            if server == self.index:
                self.kernel.call_at(max(at, self.kernel.now), self._set_policy, policy)
        if self._is_alone:
            self.coordinator.send(ServerBack(self.shard.version, self.shard.clock))
        await self._send_snapshots()

    async def _saved_state(self, folder: Path) -> ShardState:
        """Return the state of a checkpoint with which this server begins. Raises RunError."""
        if not self._copies:
            return self._state_in(folder)
        with TemporaryDirectory(prefix="outpace-") as copied:
            await self.fetched.into(Path(copied))
            return self._state_in(Path(copied))

    def _state_in(self, folder: Path) -> ShardState:
        """Return the state, and begin with the policy that was in force."""
        ordered = saved_policy(folder, self.index, self._experiment)
        if ordered is not None:
            self._followed = replace(self._followed, base=ordered)
        return saved_state(folder, self.index, self._experiment)

    async def _serve_others(self, plan: Plan) -> None:
        """Join a run that goes on: wait for the parts of other servers."""
        self._let_move(Division(plan.division, {}), None)
        await self.start_run()
        self._start_program()
        await self._send_snapshots()

    async def _send_snapshots(self) -> None:
        while True:
            read = await self.order(TakeSnapshot)
            if self.shard.version >= read.version:
                self._send_snapshot(read.request)
            else:
                self._asked[read.version] = read.request

    def _let_move(self, division: Division, shard: TimedShard | None) -> None:
        """Take part in new divisions, if servers may join and leave."""
        experiment = self._experiment
        if not why_servers_stay(experiment):
            around = Around(
                self.index,
                self.transport,
                self.listener,
                self._inbox,
                self.coordinator.send,
            )
            plan = self._plan
            self._moves = ServerMoves(
                around, division, shard, plan.dtype, self._begin, plan.layers, self._script
            )

    def _start_program(self) -> None:
        moves = None if self._moves is None else self._moves.moves
        program = server_program(self._experiment, self._checkpoints.cuts, moves)
        self.kernel.spawn(program(self), f"{self.name}'s shard", daemon=True)

    def _begin(self, division: Division, state: ShardState, workers: int | None) -> TimedShard:
        """Go on with the parameters of another part. workers: see `Moves`."""
        assert self._moves is not None
        part, layers = division.parts[self.index], self._plan.layers
        self._block = self._moves.block(division.size(self.index))
        made = None if self._script is None else self._script.of(part)
        block = parameter_block(
            state.parameters,
            self._optimizer(made),
            deterministic=self._experiment.deterministic,
            layers=layers_of(part, layers),
            new_memory=self._new_memory,
        )
        policy = self._followed.policy
        shard = TimedShard(self.index, block, len(state.watermarks), policy, self.recorder)
        shard.times = self._times
        shard.restore(state, self.clock.now, everyone=False, workers=workers)
        self.shard, self._is_ready = shard, True
        if isinstance(block, TensorBlock) and isinstance(block.take_step, TorchSteps):
            self._steps = block.take_step
        if made is not None:
            self._lengths = lengths_of(made.groups)
        self._want_final.clear()  # workers that have left ask the servers of this division again
        early, self._early = self._early, {}
        for (peer, _), (request, value) in early.items():
            if request.division == division.number:
                self._take_request(peer, request, value)
        return shard

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if self._checkpoints.take(message):
            pass
        elif isinstance(message, ChangePolicy):
            self._follow(changed(self._followed, self._experiment, message))
        elif isinstance(message, Close):
            self._inbox.put(message)
        elif self._moves is not None and self._moves.order(message):
            self._asked.clear()
        elif isinstance(message, RunHasWorkers):
            for new in message.new:
                self.listener.admit(worker_name(new.worker), new.key)
            self._inbox.put(SetWorkers(message.workers))
        elif isinstance(message, ReplaceWorker):
            self.kernel.spawn(self._replace(message), "a replacement", daemon=True)
        else:
            super()._order(peer, message, block)

    async def _replace(self, order: ReplaceWorker) -> None:
        """Hear only a new process of a worker, and tell how far the old one has come."""
        name, kernel = worker_name(order.worker), self.kernel
        limit = kernel.now + nanoseconds(_LAST_MESSAGES_S)
        await kernel.sleep(_LOOK_S)
        while self.listener.unread and kernel.now < limit:  # perhaps of the old process
            await kernel.sleep(_LOOK_S)
        if order.generation > FIRST:
            self.listener.replace(name, order.generation, returns=order.stays)
        self._want_initial.discard(name)
        self._want_final.discard(name)
        await self._inbox.settled()
        progress = self._progress(order.worker)
        await self._inbox.replace(order.worker, stays=order.stays)
        if order.stays:  # when a worker leaves, iterations may finish for which it was waited for
            progress = self._progress(order.worker)
        self.coordinator.send(WorkerReplaced(order.worker, order.generation, *progress))

    def _progress(self, worker: int) -> tuple[int, int]:
        """Return the last iteration of a worker, and how many iterations are finished."""
        return self.shard.watermark(worker), self.shard.clock

    def _set_policy(self, policy: Policy) -> None:
        self._follow(replace(self._followed, base=policy))

    def _follow(self, followed: Conditioned) -> None:
        """Change the policy after the messages that have already arrived."""
        self._followed = followed
        self._inbox.put(SetPolicy(followed.policy))

    def _optimizer(self, asked: ScriptOptimizer | None) -> Optimizer:
        """Return the configuration's optimizer, or the one that a script attached."""
        optimizer = self._experiment.optimizer
        if asked is None:
            return optimizer
        if isinstance(optimizer, PythonOptimizer):  # code named by the configuration
            return optimizer.of_groups(asked.groups, asked.settings)
        return TorchOptimizer(asked.optimizer, asked.groups, asked.settings)

    def finish(self) -> None:
        if self._is_ready and (self._moves is None or self._moves.moves.shard is not None):
            now = self.clock.now
            self.shard.close(now if self._all_left_at is None else self._all_left_at)
        super().finish()

    def _end_times(self) -> None:
        self._times.close()

    # -- incoming messages -------------------------------------------------------

    def _expected_of_worker(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, WirePush):
            block = self._block
            if self._moves is not None:
                block = self._moves.block_of(peer, block)
            return on_the_wire(block) if block and self._is_narrow else block
        if isinstance(message, OptimizerState):
            lengths = self._lengths_in(message.division)
            size = bytes_due(message.entries, lengths) if peer == worker_name(0) else None
            return None if size is None else ("uint8", size)
        if isinstance(message, Probe):
            return self._probes.expected(peer, message)
        if isinstance(message, HandOver):
            return None if self._moves is None else self._moves.expected(peer, message)
        return self._block if isinstance(message, Initialize) else None

    def _lengths_in(self, division: int) -> dict[int, int]:
        """Return the elements of each tensor in this server's part of a division."""
        if self._moves is None or self._script is None:
            return self._lengths
        return self._script.lengths(self._moves.part(division))

    def _take(self, peer: str, received: WireMessage, block: Block | None) -> None:
        if messages := for_shard(received, block):
            if isinstance(received, WirePush):
                if received.timed:
                    self._times.received(peer, received, block)
            elif isinstance(received, Pull):
                self._times.received(peer, received, block)
            elif isinstance(received, GoOver) and self._moves is not None:
                self._moves.went_over(peer)
                self._times.forget(received.worker)
            for message in messages:
                if self._inbox.take(peer, message) and isinstance(message, Push):
                    self._require_finite(message)
        elif isinstance(received, HandOver) and self._moves is not None and block is not None:
            self._moves.take(peer, received, block)
        elif isinstance(received, _Request) and not self._has_part_of(received.division):
            if received.division >= self._division:  # the part is still on its way
                self._early[peer, type(received)] = received, block
            # Else the worker has left, and will hear of the present division.
        elif isinstance(received, _Request) and self._may_request(received):
            self._take_request(peer, received, block)
        elif (
            isinstance(received, Initialize)
            and peer == worker_name(0)
            and not self._initialized.done
        ):
            assert block is not None
            self._lengths = lengths_of(received.groups)
            self._initialized.set((received, whole(block)))
        elif isinstance(received, Probe):
            assert block is not None
            self._probes.answer(peer, received, block)
        else:
            self.listener.refuse(
                peer, f"{type(received).__name__} is not accepted from this worker now"
            )

    def _has_part_of(self, division: int) -> bool:
        """True if the shard is this server's part of this division."""
        if self._moves is None:
            return division == 0
        return self._moves.moves.shard is not None and division == self._division

    def _may_request(self, received: _Request) -> bool:
        if isinstance(received, OptimizerState):
            return self._takes_state
        return self._is_ready or isinstance(received, Fetch)

    def _take_request(self, peer: str, received: _Request, block: Block | None) -> None:
        """Answer a request for this server's part, or take a state of the optimizer."""
        if isinstance(received, OptimizerState):
            assert block is not None
            self._take_state(received, block)
        elif isinstance(received, FetchState):
            self._send_state(peer)
        elif received.final and not self._all_left:
            self._want_final.add(peer)
        elif self._is_ready:
            self._send_parameters(peer)
        else:
            self._want_initial.add(peer)

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

    def _updated(self, shard: int, version: int) -> None:
        if version in self._asked:
            self._send_snapshot(self._asked.pop(version))
        self._checkpoints.updated(version)

    @property
    def _takes_state(self) -> bool:
        """True if worker 0 may send the optimizer's state now."""
        return self._steps is not None if self._is_ready else not self._given_state.done

    def _take_state(self, received: OptimizerState, block: Block) -> None:
        data = whole(block)
        assert isinstance(data, torch.Tensor)
        state = state_from(received.entries, data)
        if self._is_ready:
            assert self._steps is not None
            self._steps.load(state)
        else:
            self._given_state.set(state)

    def _send_state(self, peer: str) -> None:
        state = {} if self._steps is None else self._steps.state()
        entries, data = entries_of(state)
        answer = OptimizerState(self.index, entries, head_of(data), self._division)
        self.listener.send(peer, answer, data)

    @property
    def _all_left(self) -> bool:
        is_moving = self._moves is not None and self._moves.moves.is_moving
        return self._is_ready and not is_moving and self.shard.live == 0

    def _send_parameters(self, peer: str) -> None:
        self.listener.send(peer, *self._snapshot())

    def _send_snapshot(self, request: int) -> None:
        self.coordinator.send(*self._snapshot(request, self.recorder.totals.applied))

    def _snapshot(self, request: int = 0, applied: int = 0) -> tuple[Snapshot, Block]:
        shard = self.shard
        block, now = shard.read(), self.clock.now
        head, division = head_of(block), self._division
        return Snapshot(self.index, shard.version, request, now, applied, head, division), block

    @property
    def _division(self) -> int:
        """The number of the division to which the shard belongs."""
        return 0 if self._moves is None else self._moves.moves.division.number

    # -- the context of the program ----------------------------------------------

    @property
    def now(self) -> Time:
        return self.clock.now

    async def recv(self) -> Message:
        self._look_at_last()
        self._taken = await self._inbox.recv()
        return self._taken

    async def recv_within(self, timeout_s: float) -> Message | None:
        self._look_at_last()
        self._taken = await self._inbox.recv_within(timeout_s)
        return self._taken

    def _look_at_last(self) -> None:
        """Do what follows the last message, which the shard has processed."""
        last = self._taken
        if isinstance(last, _OF_SHARD):  # most messages: nothing follows
            return
        if self._is_alone and isinstance(last, Rejoin):
            self.coordinator.send(WorkerRejoined(last.worker, last.first))
        self._answer_if_all_left()

    def _answer_if_all_left(self) -> None:
        """Send the final parameters to the workers that wait for them."""
        if self._all_left_at is None and self._all_left:
            self._all_left_at = self.clock.now
        if self._want_final and self._all_left:
            for peer in self._want_final:
                self._send_parameters(peer)
            self._want_final.clear()

    def send(self, to: str, *messages: Message) -> None:
        totals = self.recorder.totals
        for message in messages:
            totals.messages += 1
            if isinstance(message, Ack):
                self.listener.send(to, message)
                continue
            assert isinstance(message, Reply)
            assert message.parameters is not None
            block = message.parameters
            self._turns.answered(message.worker, message.iteration)
            totals.bytes_sent += block.nbytes
            began = monotonic_ns() if self._times.count else 0
            self.listener.send(to, wire_reply(message, block), block)
            if began:
                self._times.answered(message.worker, message.iteration, block.nbytes, began)


def _copy(parameters: Value) -> Value:
    """Return parameters that the optimizer may change."""
    return parameters.clone() if isinstance(parameters, torch.Tensor) else parameters


def serve(*arguments: Any) -> None:
    """Run a server in its process; arguments of `Server`."""
    server = Server(*arguments)
    server.run(server.serve())
