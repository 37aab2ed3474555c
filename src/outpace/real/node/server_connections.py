"""A worker's connections to servers: messages of its program, requests, the first probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Final, Literal, TypeAlias, TypeVar

import torch

from outpace.blocks.block import Block, whole, whole_tensor
from outpace.config.experiment import Experiment
from outpace.engine.servers import is_narrow
from outpace.errors import RunError
from outpace.kernel import Mailbox
from outpace.optim.torch_optimizers import State
from outpace.real.net.block_frames import head_of, on_the_wire, value_bytes
from outpace.real.net.messages import Fetch, OptimizerState, Plan, Refused, Snapshot
from outpace.real.net.probes import SIZES, Probe, ProbeTurn, probe_block
from outpace.real.net.transport import Caller, Handlers
from outpace.real.node.member import Lost
from outpace.real.node.optimizer_state import bytes_due, entries_of, state_from
from outpace.real.node.timing import RequestTimes
from outpace.real.node.worker_process import WorkerProcess
from outpace.record.timing import PROBE, PULL, PUSH
from outpace.support.units import Time
from outpace.sync.messages import (
    Ack,
    Leave,
    Message,
    Pull,
    Push,
    Rejoin,
    Reply,
    WireMessage,
    server_name,
)

_FetchedT = TypeVar("_FetchedT", Snapshot, OptimizerState)
_Expect: TypeAlias = Callable[[str, WireMessage], tuple[str, int] | None]  # see `Handlers`

_FREE: Final = Leave | Rejoin  # messages that do not count
_REQUESTS: Final = Push | Pull
_ANSWERS: Final = Reply | Snapshot | Probe | OptimizerState  # messages with a block
_NONE_DUE: Final = -1, -1, -1


class ServerConnections:
    """The connections of a worker to the servers. The coordinator's connection is the scheduler's.

    Attributes:
        callers: one for each server; none before `connect`.
        names: names of the servers with which the run begins.
        mailbox: messages that the worker's program has not read.
        last_pushed: the last iteration that was pushed to any server; -1: none.
        has_left: True: the worker has left the run, and has the final parameters if it needs them.
    """

    def __init__(self, process: WorkerProcess, experiment: Experiment) -> None:
        kernel = process.kernel
        self.names: list[str] = []
        self.mailbox = Mailbox[Message](kernel, f"the mailbox of {process.name}")
        self.last_pushed, self.has_left = -1, False
        self._process, self._totals = process, process.recorder.totals
        self._is_narrow = is_narrow(experiment)  # True: answers to pulls carry bfloat16
        self.times = RequestTimes(process.timing, process.worker)
        self.timed_from = 0  # times of earlier iterations belong to the process that computed them
        self.callers: list[Caller] = []
        self._numbers: dict[str, int] = {}  # numbers of the servers, by name
        self._fetched = Mailbox[Snapshot | OptimizerState](
            kernel, "what the servers were asked for"
        )
        self._probed = Mailbox[Probe](kernel, "the answer to a probe")
        self._due = _NONE_DUE  # server, number and bytes of the expected answer of a probe

    def connect(self, plan: Plan, blocks: Sequence[Block]) -> None:
        """Connect to the servers. blocks: the initial block of each server."""
        process = self._process
        for server, (endpoint, key) in enumerate(zip(plan.endpoints, plan.keys, strict=True)):
            name, head = server_name(server), head_of(blocks[server])
            part = head.dtype, head.elements
            # dtype and elements as the block is pushed and answered
            sent = on_the_wire(part) if self._is_narrow else part
            expect = _expected_of(server, part, sent, process.trainer.lengths(server))
            handlers = Handlers(expect, self._take, self._lost)
            caller = process.transport.call(name, endpoint, key, handlers)
            caller.share_memory(value_bytes(sent))
            self.callers.append(caller)
            self._numbers[name] = server
            self.names.append(name)

    # -- messages of the program -------------------------------------------------------------

    def send(self, to: str, *messages: Message) -> None:
        """See `Context.send`.

        Raises:
            WireError: if the receiver refused the connection.
        """
        server = self._numbers.get(to)  # None: the receiver is the scheduler
        first = messages[0]
        self._totals.messages += 0 if isinstance(first, _FREE) else len(messages)
        if isinstance(first, Push):
            self.last_pushed = first.iteration
            match messages[1:]:
                case [Pull() as pull] if pull.iteration == first.iteration:
                    first.coin, messages = pull.coin, messages[:1]  # both are sent as one message
        for message in messages:
            self._send(server, message)

    def _send(self, server: int | None, message: Message) -> None:
        """Send a message, and note the times of a request. server: None: to the scheduler."""
        process, block, size, is_timed = self._process, None, 0, False
        if isinstance(message, _REQUESTS):
            is_due = server is not None and message.iteration >= self.timed_from
            is_timed = is_due and process.is_recorded(message.iteration)
        pulls = isinstance(message, Pull)
        if isinstance(message, Push):
            block, size, pulls = message.gradient, message.nbytes, message.coin is not None
            self._totals.bytes_sent += size
            message.timed = is_timed
            if block is not None:
                message.settings = process.trainer.step_settings
        assert isinstance(message, WireMessage)
        began = monotonic_ns()
        (process.coordinator if server is None else self.callers[server]).send(message)
        if is_timed:
            assert server is not None
            assert isinstance(message, _REQUESTS)
            what, iteration = PULL if isinstance(message, Pull) else PUSH, message.iteration
            self.times.sent(what, server, iteration, size, began, pulls=pulls)

    # -- requests ------------------------------------------------------------------------

    def initialize(self, blocks: Sequence[Block]) -> None:
        """Send the servers worker 0's parameters and its optimizer's state, for their start."""
        trainer = self._process.trainer
        for server, (caller, block) in enumerate(zip(self.callers, blocks, strict=True)):
            caller.send(trainer.initialize(server, block))
        if initial_state := trainer.initial_state():
            self.replace_optimizer_state(initial_state)

    async def parameters(self, *, final: bool) -> list[Block]:
        """Return the servers' parameters, in ascending order.

        final: True: the parameters at the end of the training, for which the servers wait.
        """
        found = await self._all_of("final" if final else "initial", Snapshot)
        return [whole(each.block) for each in found]

    async def optimizer_state(self) -> list[dict[int, State]]:
        """Return the state of the servers' optimizers, in ascending order."""
        self._process.kernel.catch_up()
        found = await self._all_of("state", OptimizerState)
        return [state_from(each.entries, whole_tensor(each.block)) for each in found]

    def replace_optimizer_state(self, states: Sequence[Mapping[int, State]]) -> None:
        """Replace the state of the servers' optimizers before the next push arrives.

        states: one for each server, in ascending order.
        """
        for server, (caller, state) in enumerate(zip(self.callers, states, strict=True)):
            entries, data = entries_of(state)
            caller.send(OptimizerState(server, entries, data))

    async def _all_of(
        self, what: Literal["initial", "final", "state"], kind: type[_FetchedT]
    ) -> list[_FetchedT]:
        """Return the answers of all servers to a Fetch, in ascending order."""
        for caller in self.callers:
            caller.send(Fetch(what))
        found: dict[int, _FetchedT] = {}
        while len(found) < len(self.callers):
            if isinstance(answer := await self._fetched.get(), kind):
                found[answer.shard] = answer
        return [found[server] for server in sorted(found)]

    async def probe(self, budget: Time) -> None:
        """Exchange messages with the servers for at most `budget` ns; see `real.net.probes`."""
        zeros = torch.zeros(max(SIZES), dtype=torch.uint8, device="cpu")
        turn = ProbeTurn(self._process.worker, len(self.callers), budget)
        numbers = [0] * len(self.callers)
        for server, size in turn.exchanges():
            number = numbers[server]
            numbers[server] += 1
            self._due = server, number, size
            began = monotonic_ns()
            self.callers[server].send(Probe(server, number, zeros[:size]))
            self.times.sent(PROBE, server, number, size, began, pulls=True)
            await self._probed.get()
            turn.took(monotonic_ns() - began)

    # -- what arrives ----------------------------------------------------------------------

    def _take(self, peer: str, message: WireMessage) -> None:
        if isinstance(message, Reply):
            if self.times.open:
                self.times.arrived(message.shard, message.iteration, message.nbytes)
            self.mailbox.put(message)
        elif isinstance(message, Ack):
            self.mailbox.put(message)
        elif isinstance(message, Snapshot | OptimizerState):
            self._fetched.put(message)
        elif isinstance(message, Probe) and self._due == _place_of(message):
            self._due = _NONE_DUE
            self.times.arrived(*_place_of(message))
            self._probed.put(message)
        elif isinstance(message, Refused):
            if not (message.replaced_by and (self._process.is_done or self.has_left)):
                raise self._process.refused_by(peer, message)
        else:
            raise RunError(f"{peer} sent {self._process.name} a {type(message).__name__}")

    def _lost(self, server: str) -> None:
        """Handle the end of a server's connection. Raises Lost unless this worker had to end."""
        if not self._process.is_done:
            raise Lost(self._process.name, server)


def _expected_of(
    server: int, part: tuple[str, int], sent: tuple[str, int], lengths: Mapping[int, int]
) -> _Expect:
    """Return a check that accepts only blocks of this server.

    Args:
        part: dtype and elements of the server's part of the parameters.
        sent: dtype and elements of the block that answers a pull.
        lengths: number of elements that the server has of each tensor of a script.
    """

    def expected(_: str, message: WireMessage) -> tuple[str, int] | None:
        if not isinstance(message, _ANSWERS) or message.shard != server:
            return None
        if isinstance(message, Reply):
            return sent
        if isinstance(message, Snapshot):
            return part
        if isinstance(message, Probe):
            return probe_block(message)
        state = bytes_due(message.entries, lengths)
        return None if state is None else ("uint8", state)

    return expected


def _place_of(answer: Probe) -> tuple[int, int, int]:
    return answer.shard, answer.number, answer.block.nbytes
