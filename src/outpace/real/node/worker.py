"""The process of a worker in a run with servers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any, Final, TypeAlias, TypeVar

import torch

from outpace.blocks.block import Block, parameters_digest, value_of, whole
from outpace.blocks.division import Division, Ranges, size_of
from outpace.blocks.recutting import Recut
from outpace.config.experiment import Experiment
from outpace.engine.narrowing import is_narrow
from outpace.engine.scripts.redividing import Redivided
from outpace.engine.servers import (
    has_scheduler,
    returns_alone,
    tells_pauses,
    why_servers_stay,
    worker_program,
)
from outpace.errors import RunError
from outpace.kernel import Mailbox
from outpace.optim.torch_optimizers import State
from outpace.real.net.block_frames import head_of, on_the_wire
from outpace.real.net.checkpoint_messages import ScriptState
from outpace.real.net.membership_messages import (
    DataDivided,
    EndsTraining,
    Fenced,
    LeaveRun,
    ServerLost,
    ServerReturned,
)
from outpace.real.net.messages import (
    PHANTOM,
    BlockHead,
    Fetch,
    FetchState,
    OptimizerState,
    Plan,
    Refused,
    Snapshot,
    StateLoaded,
    WirePush,
    WireReply,
)
from outpace.real.net.moving_messages import Divide
from outpace.real.net.probe_messages import ProbeAnswer
from outpace.real.net.probes import SIZES
from outpace.real.net.translation import reply_of
from outpace.real.net.transport import FIRST, Caller, Handlers
from outpace.real.net.wire import WireError
from outpace.real.node.in_parts import send_parts
from outpace.real.node.member import CoordinatorLink, Lost
from outpace.real.node.optimizer_state import bytes_due, entries_of, state_from
from outpace.real.node.probing import ProbeOfServers
from outpace.real.node.timing import RequestTimes
from outpace.real.node.worker_process import Trainer, WorkerProcess, others_of
from outpace.record.timing import PULL, PUSH, STOPPED
from outpace.support.place import HERE
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import (
    SCHEDULER,
    Abort,
    Ack,
    Began,
    Divided,
    Done,
    GoOver,
    Leave,
    Message,
    Pause,
    Pull,
    Push,
    Rejoin,
    Restarted,
    Resume,
    Resync,
    WireMessage,
    server_name,
    size_bytes,
)
from outpace.sync.moving.worker import DividedServers
from outpace.sync.programs.context import AbortableContext, SendPart, Stopped
from outpace.sync.programs.restarted import RestartedServers

_T = TypeVar("_T")
_Answer: TypeAlias = tuple[int, int, _T] | None

_LOST_AFTER: Final = 2.0  # leases, for the coordinator to notice the loss of a server, too


class ServedWorker(WorkerProcess):
    """The process of a worker with servers. Implements `AbortableContext`."""

    def __init__(self, link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
        super().__init__(link, worker, experiment)
        self.servers: list[str] = []
        self.first_iteration: int | None = None  # to begin with in the middle of a run
        self.kept: tuple[torch.Tensor, ScriptState] | None = None  # what its script kept
        self.redivided: Redivided | None = None  # if there were other workers at the checkpoint
        self.has_ended = False  # its script had come to its end at the checkpoint
        # Returns True if an order of the coordinator is about checkpoints.
        self.take_checkpoint: Callable[[WireMessage], bool] = lambda message: False
        # Deals the data out to another number of workers, from an iteration on.
        self.divide_data: Callable[[int, int], None] = lambda first, workers: None
        self._leaves_before: float = math.inf  # the iteration before which it leaves the run
        self._kept_bytes = 0  # that the coordinator sends
        name = f"what {self.name}'s script kept"
        self._kept_states = Mailbox[tuple[torch.Tensor, ScriptState]](self.kernel, name)
        self._train = worker_program(experiment)
        self._has_scheduler = has_scheduler(experiment)
        self._is_narrow = is_narrow(experiment)
        self.tells_pauses = tells_pauses(experiment)
        self._mailbox = Mailbox[Message](self.kernel, f"the mailbox of {self.name}")
        # What servers answer: their division and number, and the answer. None: ask them again.
        self._states = Mailbox[_Answer[dict[int, State]]](self.kernel, "the optimizer's state")
        self._snapshots = Mailbox[_Answer[Block]](self.kernel, "the servers' parameters")
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = self._mailbox.get
        self._callers: dict[str, Caller] = {}
        self._plan: Plan
        self._returns = returns_alone(experiment)
        self._context: RestartedServers | None = None  # if servers come back alone
        self._generations: dict[str, int] = {}  # of the servers
        self._lost_servers: dict[str, bool] = {}  # whether the coordinator knows that they are
        self._unread: Counter[str] = Counter()  # returns of servers that the program has not read
        # Requests to servers that have no answer.
        self._fetching: dict[str, Fetch | FetchState] = {}
        self._leaves = False  # its script leaves the training, or has left it
        self._has_left = False  # and has the final parameters, if it wants them
        self._deaf: set[str] = set()  # servers that came back since, and hear this worker no more
        self._numbers: dict[str, int] = {}  # of the servers
        self._times = RequestTimes(self.timing, worker)
        self._probe = ProbeOfServers(self.kernel, worker, self._times)
        self._blocks: list[Block] = []
        self._can_move = not why_servers_stay(experiment)
        self._forward_share = experiment.forward_share
        self._division: Division  # of the servers that there are
        self._before: Division  # the one before it
        self._divided: DividedServers | None = None  # if servers may join and leave
        self._presents = Mailbox[Divide](self.kernel, "the present servers")
        self._last_pushed = -1
        self._reasked = -1  # the iteration whose pulls were repeated for a new division
        self._coins = RandomStream(
            experiment.seed, "coin", worker, lambda source, n: source.random(n)
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
            collects=HERE.is_distributed,
            kept=sorted(HERE.kept),
        )
        self._blocks = trainer.cut(plan.slices)
        self._call(plan, await self._presents.get() if plan.division else None)
        if self.worker == 0 and not plan.late:
            for server, block in enumerate(self._blocks):
                message = trainer.initialize(server, block)
                self._callers[server_name(server)].send(message, block)
            if initial_state := trainer.initial_state(self.parts):
                self.replace_optimizer_state(initial_state)
        elif plan.late or digest != plan.digest:
            self._blocks = await self._fetch(final=False)
        if not plan.late:
            await self.agree_on_buffers()
        if plan.first:
            self.first_iteration = plan.first[self.worker]
        for first, workers in plan.data:
            self.divide_data(first, workers)
        self.has_ended = self.worker in plan.ended
        self.redivided = others_of(plan)
        if self._kept_bytes:
            self.kept = await self._kept_states.get()
        context: AbortableContext = self
        if self._can_move:  # before the first order about it
            at_start = Division.of_slices(plan.slices)
            context = self._divided = DividedServers(self, at_start, self._division)
        await self.start_run()
        if self._returns:
            self.recv = self._recv
            context = self._context = RestartedServers(context)
        await self._train(context)

    def _call(self, plan: Plan, present: Divide | None) -> None:
        """Connect to the servers. present: those that there are, if some have joined or left."""
        self._plan = plan
        self._division = self._before = Division.of_slices(plan.slices)
        if present is not None:
            self.servers = [server_name(server) for server in self._division.servers]
            self._numbers = {name: number for number, name in enumerate(self.servers)}
            self._division = self._before = present.division.division()
            self._connect_all(present)
            return
        for server, endpoint in enumerate(plan.endpoints):
            name = server_name(server)
            self.servers.append(name)
            self._numbers[name] = server
            generation = plan.generations[server] if plan.generations else FIRST
            self._connect(server, endpoint, generation, plan.keys[server] if plan.keys else "")
        self._times.connected(len(self.servers))

    def _connect(self, server: int, endpoint: str, generation: int, key: str) -> None:
        name = server_name(server)
        self._generations[name] = generation
        head = head_of(self._blocks[server]) if server < len(self._blocks) else None
        self._callers[name] = self.transport.call(
            name,
            endpoint,
            key,
            Handlers(
                _expect(server, head, self._lengths, self._due, self._is_narrow),
                partial(self._take_of, generation),
                partial(self._lost_of, generation),
            ),
            generation,
        )

    def gradient_memory(self, block: int, elements: int, dtype: torch.dtype) -> torch.Tensor | None:
        caller = self._callers.get(self.servers[block]) if block < len(self.servers) else None
        if caller is None or self._division.number:  # then other blocks travel
            return None
        return caller.memory(elements, dtype)

    def _take_of(
        self, generation: int, peer: str, message: WireMessage, block: Block | None
    ) -> None:
        if generation == self._generations[peer]:
            self._take(peer, message, block)

    def _lost_of(self, generation: int, peer: str) -> None:
        if generation == self._generations[peer]:
            self._lost(peer)

    async def _fetch(self, *, final: bool) -> list[Block]:
        """Return the servers' parameters, in the blocks that the program knows."""
        asked, blocks = await self._all_of(lambda division: Fetch(final, division), self._snapshots)
        if asked.number == 0:
            return [blocks[server] for server in range(len(blocks))]
        first = Division.of_slices(self._plan.slices)
        values = {server: value_of(block) for server, block in blocks.items()}
        return [Recut(first.parts[n], asked).block(values) for n in first.servers]

    @property
    def _serving(self) -> Division:
        """The division of the servers that have a part for this worker.

        They keep their parts until its program goes over to the next division, or has left.
        """
        if self._divided is None or self._leaves:
            return self._division
        return self._divided.division

    @property
    def parts(self) -> list[Ranges]:
        """The parts of the servers that `replace_optimizer_state` sends to, in this order."""
        return [self._serving.parts[server] for server in self._serving.servers]

    async def _all_of(
        self, request: Callable[[int], Fetch | FetchState], answers: Mailbox[_Answer[_T]]
    ) -> tuple[Division, dict[int, _T]]:
        """Return the answers of all servers of a division to a request, and this division.

        Servers of the next division are asked if one begins meanwhile, as when a script waits for
        the end of others.
        """
        asked = self._serving
        found: dict[int, _T] = {}
        self._ask(asked, request(asked.number))
        while len(found) < len(asked.parts):
            answer = await answers.get()
            if self._serving is not asked:
                asked = self._serving
                found.clear()
                self._ask(asked, request(asked.number))
            elif answer is not None and answer[0] == asked.number:
                found[answer[1]] = answer[2]
        return asked, found

    def _ask(self, division: Division, request: Fetch | FetchState) -> None:
        """Send a request to its servers, and again to one that comes back without an answer."""
        self._fetching.clear()
        for name in map(server_name, division.servers):
            self._require_hearing(name)
            self._fetching[name] = request
            if name not in self._lost_servers:
                self._callers[name].send(request)

    def _require_hearing(self, name: str) -> None:
        if name in self._deaf:
            raise RunError(
                f"{name} came back from a checkpoint as {self.name} left the training, and does "
                "not hear it any more: call optimizer.state_dict() before outpace.finish()"
            )

    async def probe(self, budget: Time) -> None:
        await self._probe.run(budget, list(self._callers.values()))

    @property
    def why_done(self) -> str:
        is_told = math.isfinite(self._leaves_before)
        return f"{self.name} was told to leave the run" if is_told else super().why_done

    async def leave(self, *, fetch: bool) -> list[Block]:
        # The program stays suspended and sends nothing more.
        self._tell_all(Leave(self.worker))
        self._leaves = True
        if self._context is not None:
            attending = self._context.attend_always()
            self.kernel.spawn(attending, f"{self.name}'s servers", daemon=True)
        parameters: list[Block] = []
        if fetch:
            self.coordinator.send(EndsTraining())
            parameters = await self._fetch(final=True)
        self._has_left = True
        return parameters

    def _tell_all(self, message: Leave | Pause | Resume) -> None:
        """Tell the servers, and the scheduler if there is one."""
        context = self._context or self._divided
        send = self.send if context is None else context.send
        for name in self.servers + [SCHEDULER] * self._has_scheduler:
            send(name, message)

    def attend(self) -> None:
        """Go on with servers that have come back alone, while the program is suspended."""
        if self._context is not None:
            self._context.attend()

    def pause(self) -> None:
        """Tell servers and scheduler that the script waits in a collective of its own."""
        self._tell_all(Pause(self.worker))

    def resume(self) -> None:
        """Tell them that the script goes on; only after `pause`."""
        self._tell_all(Resume(self.worker))

    # -- the state of a script's optimizer -----------------------------------------------

    async def optimizer_state(self) -> list[tuple[Ranges, dict[int, State]]]:
        """Return the state of the servers' optimizers, each with the part of its server.

        Raises:
            RunError: if a server does not hear this worker, which has left the training.
        """
        self.kernel.catch_up()
        asked, states = await self._all_of(FetchState, self._states)
        return [(asked.parts[server], state) for server, state in sorted(states.items())]

    def replace_optimizer_state(self, states: Sequence[Mapping[int, State]]) -> None:
        """Replace the state of the servers' optimizers, before the next push arrives there.

        states: one for each of `parts`.
        """
        if self.has_started and self._returns:
            self.kernel.catch_up()
            self.coordinator.send(StateLoaded())  # before a server can have the state
        division = self._serving
        for server, state in zip(division.servers, states, strict=True):
            name = server_name(server)
            if name not in self._lost_servers:  # else all processes begin again
                entries, data = entries_of(state)
                message = OptimizerState(server, entries, head_of(data), division.number)
                self._callers[name].send(message, data)

    # -- the context of the program ----------------------------------------------------

    def initial_parameters(self) -> list[Block]:
        return list(self._blocks)

    def coin(self, iteration: int) -> float:
        return self._coins[iteration]

    async def recv_several(self, count: int) -> Sequence[Message]:
        return [await self.recv()]  # each is processed while others arrive

    def recv_nowait(self) -> Message | None:
        if not len(self._mailbox):
            self.kernel.catch_up()  # handles messages that arrived during the computation
        return self._read(self._mailbox.get_nowait())

    async def recv_within(self, timeout_s: float) -> Message | None:
        self.kernel.catch_up()  # the timeout starts now
        return self._read(await self._mailbox.get_within(timeout_s))

    async def _recv(self) -> Message:
        message = await self._mailbox.get()
        self._read(message)
        return message

    def _read(self, message: Message | None) -> Message | None:
        """The program takes a message, and may send to a server that is back from then on."""
        if isinstance(message, Restarted):
            self._unread[self.servers[message.shard]] -= 1
        return message

    def send(self, to: str, *messages: Message) -> None:
        caller = self.coordinator if to == SCHEDULER else self._callers[to]
        if to in self._lost_servers or self._unread[to]:
            return  # the program repeats what is due when it knows the new process of the server
        if isinstance(messages[0], Push):
            self._last_pushed = messages[0].iteration
        try:
            self._send(to, caller, *messages)
            if isinstance(messages[0], GoOver):
                self._went_over(to)
        except WireError:
            if to not in self._lost_servers:
                raise

    def _send(self, to: str, caller: Caller, *messages: Message) -> None:
        is_free = isinstance(messages[0], Leave | Rejoin | GoOver)
        self.recorder.totals.messages += 0 if is_free else len(messages)
        match messages:
            case (Push() as push, Pull() as pull) if push.iteration == pull.iteration:
                self._send_push(to, caller, push, pull.coin)
            case _:
                for message in messages:
                    if isinstance(message, Push):
                        self._send_push(to, caller, message, None)
                        continue
                    alone = Pull | Leave | Pause | Resume | Rejoin | Began | Done | GoOver
                    assert isinstance(message, alone)
                    began = monotonic_ns()
                    caller.send(message)
                    if isinstance(message, Pull) and to != SCHEDULER:
                        self._note_pull(self._numbers[to], message.iteration, began)

    def _went_over(self, name: str) -> None:
        """This worker goes on with another division, and sends nothing for this one any more."""
        self._times.forget(self._numbers[name])
        self._reasked = self._last_pushed
        if self._numbers[name] not in self._division.parts:
            self._callers.pop(name).close()

    def _note_pull(self, server: int, iteration: int, began: int) -> None:
        # The times of an iteration before the first one are of the process that computed it.
        if iteration != self._reasked and (
            self.is_recorded(iteration) and iteration >= (self.first_iteration or 0)
        ):
            self._times.sent(PULL, server, iteration, 0, began, pulls=True)

    def _send_push(self, to: str, caller: Caller, push: Push, coin: float | None) -> None:
        """Send a push, with the coin of its pull; None for a push without a pull."""
        size = size_bytes(push)
        self.recorder.totals.bytes_sent += size
        gradient = push.gradient
        head = None if gradient is None else head_of(gradient)
        message = WirePush(push.worker, push.iteration, push.version, head, coin)
        settings = self.trainer.settings()
        if settings is not None and gradient is not None:
            message.settings, message.unused = settings.groups, settings.unused
        message.skipped = push.skipped
        if to == SCHEDULER or not self.is_recorded(push.iteration):
            caller.send(message, gradient)
            return
        message.timed = True
        began, pulls = monotonic_ns(), coin is not None
        caller.send(message, gradient)
        self._times.sent(PUSH, self._numbers[to], push.iteration, size, began, pulls=pulls)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        started = self.now
        duration_s = self.draw_s(iteration, started)

        def share() -> float:
            return min(1.0, self.worked_s(started) / duration_s)

        def is_over() -> bool:
            while message := self._mailbox.get_nowait():
                if ends_it(message):
                    return True
            return False

        gradient = await self.trainer.gradient(parameters, iteration, self.rate_limited(is_over))
        if isinstance(gradient, Stopped):
            self._note_stopped(iteration, started)
            return Stopped(share()) if duration_s else gradient
        if duration_s:
            self.kernel.catch_up()
            rest_s = max(0.0, duration_s - self.worked_s(started))
            if not self.trainer.stops:  # so neither would a computation of this duration
                await self.kernel.sleep(rest_s)
            elif await self._hears_within(rest_s, ends_it):
                self._note_stopped(iteration, started)
                return Stopped(share())
        self.computed(iteration, started)
        return gradient

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        started, slices = self.now, self._plan.slices
        share = self._forward_share
        rest = await send_parts(self, parameters, iteration, slices, share, send)
        self.computed(iteration, started)
        for server, part in rest.items():
            send(server, part)

    def iteration_resynced(
        self, iteration: int, started: Time, stopped: Time, resumed: Time, pushes: int
    ) -> None:
        self.recorder.iteration_resynced(self.worker, iteration, started, stopped, resumed, pushes)

    def prepare(self, iteration: int) -> None:
        if not self.must_stop(iteration):
            self.trainer.prepare(iteration)

    async def _hears_within(self, limit_s: float, wanted: Callable[[Message], bool]) -> bool:
        """Take messages until one is wanted; False if none is within the limit."""
        end = self.now + nanoseconds(limit_s)
        while message := await self._mailbox.get_within(seconds(max(0, end - self.now))):
            if wanted(message):
                return True
        return False

    def _note_stopped(self, iteration: int, started: Time) -> None:
        if self.is_recorded(iteration):
            self.note_computation(STOPPED, iteration, started)

    def _end_times(self) -> None:
        self._times.close()

    # -- incoming messages ---------------------------------------------------------------

    def _expected(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, WireReply):  # the scheduler's, without parameters
            return PHANTOM, 0
        if isinstance(message, ScriptState) and self._kept_bytes:
            return "uint8", self._kept_bytes
        return super()._expected(peer, message)

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, Plan) and message.kept:
            self._kept_bytes = message.kept[self.worker]
        if isinstance(message, Abort | Resync):
            self._mailbox.put(message)
        elif isinstance(message, WireReply):
            self._mailbox.put(reply_of(message, block))
        elif isinstance(message, ScriptState):
            data = whole(block) if block is not None else None
            assert isinstance(data, torch.Tensor)
            self._kept_states.put((data, message))
        elif isinstance(message, ServerLost):
            self._server_lost(server_name(message.shard))
        elif isinstance(message, ServerReturned):
            self._reconnect(message)
        elif isinstance(message, Divide):
            if self._divided is None:
                self._presents.put(message)
            else:
                self._divide(message)
        elif isinstance(message, DataDivided):
            self.divide_data(message.first, message.workers)
        elif isinstance(message, LeaveRun):
            self._leaves_before = message.first
        elif self.take_checkpoint(message):
            pass
        else:
            super()._order(peer, message, block)

    def must_stop(self, iteration: int) -> bool:
        return iteration >= self._leaves_before or super().must_stop(iteration)

    def _divide(self, message: Divide) -> None:
        """Connect to the servers that have joined, and have the program go over."""
        if self._is_done:
            return
        self._before, self._division = self._division, message.division.division()
        self._connect_all(message)
        self._mailbox.put(Divided(self._division))
        if self._leaves and self._fetching:
            self._snapshots.put(None)
            self._states.put(None)

    def _connect_all(self, message: Divide) -> None:
        """Connect to the servers of the present division, if there is no connection yet."""
        keys = message.keys or [""] * len(message.servers)
        known = zip(message.servers, message.endpoints, keys, message.generations, strict=True)
        for server, endpoint, key, generation in known:
            name = server_name(server)
            if server in self._division.parts and name not in self._callers:
                self._numbers[name] = server
                self._connect(server, endpoint, generation, key)
        self._times.connected(1 + max(self._numbers.values()))

    def _part(self, server: int, division: int) -> Ranges:
        """Return the part of a server; empty if it has none."""
        is_before = division == self._before.number  # an answer that crossed the GoOver
        return (self._before if is_before else self._division).parts.get(server, ())

    def _lengths(self, server: int, division: int) -> dict[int, int]:
        """Return the elements of each tensor of a script in a server's part."""
        return self.trainer.lengths(self._part(server, division))

    def _due(self, server: int, division: int) -> tuple[str, int] | None:
        """Return the block of a server in a division; only where servers join and leave."""
        ranges = self._part(server, division) if self._can_move else ()
        if not ranges:
            return None
        dtype = self._plan.dtype
        return dtype, size_of(ranges) * (4 if dtype == PHANTOM else 1)

    def _server_lost(self, name: str) -> None:
        """The coordinator knows that a server is lost: send nothing to it until it is back."""
        if name in self._callers:
            self._lost_servers[name] = True
            self._callers[name].close(0.0)

    def _reconnect(self, returned: ServerReturned) -> None:
        """Connect to the new process of a server, unless that has been done."""
        name = server_name(returned.shard)
        if self._is_done or returned.generation <= self._generations.get(name, FIRST):
            return  # or its plan came later, and has the new process
        self._callers[name].close(0.0)
        self._lost_servers.pop(name, None)
        keys = self._plan.keys
        key = keys[returned.shard] if keys else ""
        self._connect(returned.shard, returned.endpoint, returned.generation, key)
        self._times.forget(returned.shard)
        if (request := self._fetching.get(name)) is not None:
            self._callers[name].send(request)
        self._unread[name] += 1
        self._mailbox.put(Restarted(returned.shard, returned.version))

    def _take(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, WireReply):
            if self._times.count and message.division == self._division.number:
                self._times.arrived(message.shard, message.iteration, message.block.nbytes)
            self._mailbox.put(reply_of(message, block))
        elif isinstance(message, ProbeAnswer) and self._probe.take(message):
            pass
        elif isinstance(message, Ack):
            self._mailbox.put(message)
        elif isinstance(message, Snapshot):
            assert block is not None
            self._answered(peer, message.division)
            self._snapshots.put((message.division, message.shard, whole(block)))
        elif isinstance(message, OptimizerState):
            data = whole(block) if block is not None else None
            assert isinstance(data, torch.Tensor)
            self._answered(peer, message.division)
            state = state_from(message.entries, data)
            self._states.put((message.division, message.shard, state))
        elif isinstance(message, Fenced):
            if not (self._is_done or self._has_left):
                raise self.was_replaced()
            # A server that came back takes it that this worker has left.
            self._deaf.add(peer)
            if peer in self._fetching:
                self._require_hearing(peer)
        elif isinstance(message, Refused):
            raise RunError(f"{peer} refused {self.name}: {message.reason}")
        else:
            raise RunError(f"{peer} sent {self.name} a {type(message).__name__}")

    def _answered(self, peer: str, division: int) -> None:
        """A server has answered the request for its part of this division."""
        request = self._fetching.get(peer)
        if request is not None and request.division == division:
            del self._fetching[peer]

    def _lost(self, peer: str) -> None:
        if self._is_done:  # servers may end before a worker that has reported its end
            return
        if self._numbers[peer] not in self._division.parts:
            return  # it has left the run
        if not self._returns:
            raise Lost(self.name, peer)
        self._lost_servers.setdefault(peer, False)
        generation, now = self._generations[peer], self.kernel.now
        # Else ZeroMQ would connect again to its address, at which another process may listen.
        self.kernel.call_at(now, lambda _: self._close_lost(peer, generation))
        # From now on: the kernel's time may be that of before a long computation.
        limit = self.clock.now + nanoseconds(_LOST_AFTER * self._lease_s)
        self.kernel.call_at(limit, self._require_known_loss, (peer, generation))

    def _close_lost(self, peer: str, generation: int) -> None:
        if self._generations[peer] == generation:
            self._callers[peer].close(0.0)

    def _require_known_loss(self, lost: tuple[str, int]) -> None:
        """End if the coordinator still has the connection that this worker has lost."""
        peer, generation = lost
        if self._is_done or self._generations[peer] != generation:
            return
        if self._lost_servers.get(peer) is False:
            raise Lost(self.name, peer)

    @property
    def pushed(self) -> int:
        return 1 + (self._last_pushed if self._context is None else self._context.pushed)


def _expect(
    server: int,
    head: BlockHead | None,
    lengths: Callable[[int, int], dict[int, int]],
    later: Callable[[int, int], tuple[str, int] | None],
    is_narrow: bool,
) -> Callable[[str, WireMessage], tuple[str, int] | None]:
    """Return a check that accepts only blocks of this server.

    head: of its block at the start of the run; None: it has joined later. lengths: returns the
    elements of each tensor of a script in its part of a division; later: its block there.
    is_narrow: answers to pulls carry bfloat16.
    """
    due = None if head is None else (head.dtype, head.elements)

    def expected(_: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, OptimizerState) and message.shard == server:
            size = bytes_due(message.entries, lengths(server, message.division))
            return None if size is None else ("uint8", size)
        if isinstance(message, ProbeAnswer) and message.shard == server:
            size = message.block.elements
            return ("uint8", size) if size in SIZES else None
        if not isinstance(message, WireReply | Snapshot) or message.shard != server:
            return None
        found = later(server, message.division) or due
        narrows = is_narrow and isinstance(message, WireReply)
        return on_the_wire(found) if found and narrows else found

    return expected
