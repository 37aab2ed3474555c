"""The coordinator's part in a run with servers: their snapshots, and the scheduler if any.

A scheduler decides for all servers at once: it holds a barrier, or cuts iterations off. Workers
report to it over their connection to the coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from outpace.engine.servers import has_scheduler, most_unanswered, scheduler_shard
from outpace.predict.interface import Rule, Wait
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.net.inbox import Inbox, Turns, from_worker
from outpace.record.recorder import Recorder
from outpace.support.units import Time
from outpace.sync.messages import (
    SCHEDULER,
    Close,
    Done,
    FromWorker,
    Leave,
    Message,
    Pause,
    Rejoin,
    Reply,
    WireMessage,
    server_name,
)
from outpace.sync.programs.cutoff import cut_off
from outpace.sync.programs.parameter_server import parameter_server


class _Scheduler(ABC):
    """The context of a scheduler's program."""

    def __init__(self, run: RunState, turns: Turns | None = None) -> None:
        self.recorder = Recorder(run.setting.trace)
        self._run, self._kernel, self.clock = run, run.kernel, run.clock
        self._listener = run.listener
        self._inbox = inbox = Inbox(run.kernel, run.listener, f"the {SCHEDULER}", turns)
        self.recv, self.recv_within, self.refuse = inbox.recv, inbox.recv_within, inbox.refuse

    def start(self) -> None:
        self._kernel.spawn(self._program(), f"the {SCHEDULER}", daemon=True)

    def take(self, peer: str, received: WireMessage) -> bool:
        """Handle a message of a process; False if it is not for the scheduler."""
        messages = self._messages(received)
        for message in messages:
            self._inbox.take(peer, message)
        return bool(messages)

    def close(self) -> None:  # noqa: B027  # not every scheduler has something to close
        """Write the pulls that are still held to the trace."""

    async def replace(self, worker: int, *, stays: bool) -> tuple[int, int]:
        """See `WithServers.replace`."""
        await self._inbox.replace(worker, stays=stays)
        return self._reached(worker)

    def _reached(self, worker: int) -> tuple[int, int]:
        """Return the worker's last push and the clock; -1 and 0 if servers know better."""
        return -1, 0

    @abstractmethod
    def _program(self) -> Coroutine[Any, Any, None]: ...

    @abstractmethod
    def _messages(self, received: WireMessage) -> Sequence[FromWorker]:
        """Return the messages for the scheduler's program in a wire message."""

    # -- the context -----------------------------------------------------------------

    @property
    def now(self) -> Time:
        return self.clock.now

    @abstractmethod
    def send(self, to: str, *messages: Message) -> None: ...


class _ShardScheduler(_Scheduler):
    """Lets workers continue: a shard without parameters."""

    def __init__(self, run: RunState) -> None:
        self._turns = Turns(most_unanswered(run.experiment))
        super().__init__(run, self._turns)
        shard = scheduler_shard(run.experiment, self.recorder)
        assert shard is not None
        self.shard = shard

    def start(self) -> None:
        if self._run.resume is not None:
            self.shard.restore(self._run.resume.scheduler(), self.clock.now)
        super().start()

    def close(self) -> None:
        self.shard.close(self.clock.now)

    def _reached(self, worker: int) -> tuple[int, int]:
        return self.shard.watermark(worker), self.shard.clock

    def _program(self) -> Coroutine[Any, Any, None]:
        return parameter_server(self)

    def _messages(self, received: WireMessage) -> Sequence[FromWorker]:
        return from_worker(received)

    def send(self, to: str, *messages: Message) -> None:
        for reply in messages:
            assert isinstance(reply, Reply)
            self._turns.answered(reply.worker, reply.iteration)
            self.recorder.totals.messages += 1
            self._listener.send(to, reply)


class _CutOffScheduler(_Scheduler):
    """Ends iterations when `rule` says so: it gives orders to workers and servers."""

    def __init__(self, run: RunState, rule: Rule) -> None:
        super().__init__(run)
        self._rule = rule

    def _program(self) -> Coroutine[Any, Any, None]:
        experiment, resume = self._run.experiment, self._run.resume
        first = 0 if resume is None else max(resume.first)
        return cut_off(self, self._rule, experiment.workers, experiment.servers, first)

    def _messages(self, received: WireMessage) -> Sequence[FromWorker]:
        return [received] if isinstance(received, Done | Leave | Pause | Rejoin) else []

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            self.recorder.totals.messages += 1
            assert isinstance(message, Close)
            self._listener.send(to, message)

    async def decide(self, decision: Callable[[], Wait]) -> Wait:
        return decision()

    def iteration_closed(
        self, iteration: int, opened: Time, ended: Time, wait: Wait, count: int
    ) -> None:
        self.recorder.iteration_closed(iteration, opened, ended, wait, count)


class WithServers:
    """Has the same methods as `WithoutServers`."""

    def __init__(self, run: RunState) -> None:
        self.snapshots = Snapshots(run.servers, run.listener.send, run.setting.evaluate)
        self._scheduler: _Scheduler | None = None
        if run.setting.rule is not None:
            self._scheduler = _CutOffScheduler(run, run.setting.rule)
        elif has_scheduler(run.experiment):
            self._scheduler = _ShardScheduler(run)
        if self._scheduler is not None:
            run.totals_of[SCHEDULER] = self._scheduler.recorder.totals

    def start(self) -> None:
        if self._scheduler is not None:
            self._scheduler.start()

    def close(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()

    def take(self, name: str, message: WireMessage) -> bool:
        return self._scheduler is not None and self._scheduler.take(name, message)

    def source(self, shard: int) -> tuple[str, int]:
        return server_name(shard), shard

    async def replace(self, worker: int, *, stays: bool) -> tuple[int, int]:
        """Let the scheduler, if there is one, forget the process of a worker.

        Returns:
            The last iteration that the worker has pushed there, and the iterations finished; -1 and
            0 if the servers know better.
        """
        if self._scheduler is None:
            return -1, 0
        return await self._scheduler.replace(worker, stays=stays)
