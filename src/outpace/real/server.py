"""A server process: a shard behind a listener."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from outpace.config import experiment_from
from outpace.errors import ProtocolError
from outpace.kernel import Mailbox
from outpace.messages import Block, Leave, Message, Pull, Push, Reply, worker_name
from outpace.programs.parameter_server import parameter_server
from outpace.real.bodies import (
    Body,
    Fetch,
    Go,
    Initialize,
    LeaveBody,
    Plan,
    PullBody,
    PushBody,
    ReadAll,
    Ready,
    ReplyBody,
    Snapshot,
)
from outpace.real.member import Link, Member
from outpace.real.sockets import Gate, Listener, Refusals
from outpace.real.wire import block_elements, head_of
from outpace.shard import Shard
from outpace.slicing import even_slices
from outpace.units import Time
from outpace.updaters import parameter_block


class Server(Member):
    """Owns shard `index`. Workers call it; `keys` are theirs by name."""

    def __init__(self, link: Link, index: int, workers: int, keys: dict[str, str]) -> None:
        super().__init__(link)
        self.index, self.workers = index, workers
        self.shard: Shard | None = None
        self.messages = Mailbox[Message](self.kernel, f"the mailbox of {self.name}")
        self._block: tuple[str, int] | None = None  # dtype and elements, once planned
        self._every = 0  # versions between snapshots
        self._waiting: list[str] = []  # who wants the initial parameters
        self._initialized = Mailbox[Block](self.kernel, "worker-0's parameters")
        refusals = Refusals(self.notice)
        self._gate = Gate(self.context, self.clock, refusals)
        self._gate.admitted.update({key: name for name, key in keys.items()})
        names = {worker_name(worker): worker for worker in range(workers)}
        self._numbers = names
        self.listener = Listener(
            self.context, self.clock, self.session, refusals, names=names,
            expected=lambda _: self._expected, on_message=self._take, on_lost=self._lost,
        )  # fmt: skip

    def run(self) -> None:
        """Serve until the coordinator says stop."""
        self.kernel.spawn(self._serve(), self.name)
        self.drive()

    async def _serve(self) -> None:
        self.join(endpoint=self.listener.endpoint)
        plan = await self.order(Plan)
        experiment = experiment_from(json.loads(plan.experiment), "the plan")
        part = even_slices(plan.elements, experiment.servers)[self.index]
        self._block = plan.dtype, block_elements(plan.dtype, part)
        self.coordinator.send(Ready())  # to take the parameters
        block = await self._initialized.get()
        optimizer = experiment.optimizer
        self.shard = Shard(
            self.index,
            parameter_block(block, optimizer, deterministic=experiment.deterministic),
            experiment.workers,
            experiment.sync,
            self.recorder,
        )
        self._every = experiment.evaluate.every_updates or 0
        for name in self._waiting:
            self._send_initial(name)
        self.coordinator.send(Ready())
        self.start_clock(await self.order(Go))
        self.kernel.spawn(
            parameter_server(_Context(self, self.shard)), f"{self.name}'s shard", daemon=True
        )
        self.kernel.spawn(self.report(), f"{self.name}'s report", daemon=True)
        while True:
            self._send_snapshot((await self.order(ReadAll)).request)

    def finish(self) -> None:
        if self.shard is not None:
            self.shard.close(self.clock.now)
        super().finish()

    # -- what comes in -----------------------------------------------------------

    def _expected(self, body: Body) -> tuple[str, int] | None:
        return self._block if isinstance(body, PushBody | Initialize) else None

    def _take(self, peer: str, body: Body, block: Block | None) -> None:
        message = _message(body, block)
        if message is not None:
            if message.worker != self._numbers[peer]:
                self.listener.refuse(peer, f"it speaks for worker {message.worker}")
            else:
                self.messages.put(message)
        elif isinstance(body, Fetch):
            if self.shard is None:
                self._waiting.append(peer)
            else:
                self._send_initial(peer)
        elif isinstance(body, Initialize) and peer == worker_name(0) and self.shard is None:
            assert block is not None
            self._initialized.put(block)
        else:
            self.listener.refuse(peer, f"a {type(body).__name__} is nothing it may send")

    def _lost(self, peer: str) -> None:
        pass  # the coordinator loses it too, and knows whether it was done

    def _updated(self, shard: int, version: int) -> None:
        if self._every and version % self._every == 0:
            self._send_snapshot(0)

    def _send_initial(self, peer: str) -> None:
        assert self.shard is not None
        block = self.shard.read()
        self.listener.send(peer, Snapshot(self.index, 0, 0, 0, 0, head_of(block)), block)

    def _send_snapshot(self, request: int) -> None:
        shard = self.shard
        assert shard is not None
        block = shard.read()
        applied = self.recorder.totals.applied
        self.coordinator.send(
            Snapshot(self.index, shard.version, request, self.clock.now, applied, head_of(block)),
            block,
        )

    def close(self) -> None:
        self.listener.close()
        self._gate.close()
        super().close()


class _Context:
    """What the server's program may do."""

    def __init__(self, server: Server, shard: Shard) -> None:
        self.shard = shard
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = server.messages.get
        self._clock, self._listener = server.clock, server.listener
        self._totals = server.recorder.totals

    @property
    def now(self) -> Time:
        return self._clock.now

    def send(self, to: str, message: Message) -> None:
        assert isinstance(message, Reply)
        assert message.parameters is not None
        block = message.parameters
        self._totals.messages += 1
        self._totals.bytes_sent += block.nbytes
        body = ReplyBody(
            message.shard, message.worker, message.iteration, message.version, message.clock,
            message.held, head_of(block),
        )  # fmt: skip
        self._listener.send(to, body, block)

    def refuse(self, message: Message, error: ProtocolError) -> None:
        assert not isinstance(message, Reply)
        self._listener.refuse(worker_name(message.worker), str(error))


def _message(body: Body, block: Block | None) -> Push | Pull | Leave | None:
    """The shard's message of this body, if it is one."""
    if isinstance(body, PushBody):
        return Push(body.worker, body.iteration, body.version, block)
    if isinstance(body, PullBody):
        return Pull(body.worker, body.iteration, body.coin)
    if isinstance(body, LeaveBody):
        return Leave(body.worker)
    return None
