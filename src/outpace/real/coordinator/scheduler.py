"""Schedulers in the coordinator, which decide for all servers at once: hold a barrier, or cut off.

Workers report to the scheduler over their connection to the coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.servers import most_unanswered, scheduler_shard
from outpace.kernel import Kernel
from outpace.predict.interface import Rule, Wait
from outpace.real.net.clock import RealClock
from outpace.real.net.inbox import Inbox, Turns
from outpace.real.net.translation import for_shard, wire_reply
from outpace.real.net.transport import Listener
from outpace.record.recorder import Recorder
from outpace.record.trace import TraceRows
from outpace.support.units import Time
from outpace.sync.messages import (
    SCHEDULER,
    Abort,
    Close,
    Done,
    Leave,
    Message,
    Pull,
    Push,
    Reply,
    WireMessage,
)
from outpace.sync.programs.cutoff import cut_off
from outpace.sync.programs.parameter_server import parameter_server


@dataclass(frozen=True, slots=True)
class SchedulerResources:
    """The parts of the coordinator that a scheduler uses."""

    experiment: Experiment
    kernel: Kernel
    clock: RealClock
    listener: Listener
    rows: TraceRows


class Scheduler(ABC):
    """Base class; the context of the scheduler's program."""

    def __init__(self, place: SchedulerResources, turns: Turns | None = None) -> None:
        self.recorder = Recorder(place.rows, lambda shard, version: None)
        self._kernel, self._clock, self._listener = place.kernel, place.clock, place.listener
        self._inbox = inbox = Inbox(place.kernel, place.listener, f"the {SCHEDULER}", turns)
        self.recv, self.recv_within, self.refuse = inbox.recv, inbox.recv_within, inbox.refuse
        self._is_over = False

    def start(self) -> None:
        self._kernel.spawn(self._program(), f"the {SCHEDULER}", daemon=True)

    def stop(self) -> None:
        """The program was ended: later messages are ignored."""
        self._is_over = True

    def take(self, peer: str, received: WireMessage, block: Block | None) -> bool:
        """Handle a message of a process; False if it is not for the scheduler."""
        messages = self._messages(received, block)
        for message in messages:
            if not self._is_over:
                self._inbox.take(peer, message)
        return bool(messages)

    def close(self) -> None:  # noqa: B027  # not every scheduler has something to close
        """The run has ended."""

    @abstractmethod
    def _program(self) -> Coroutine[Any, Any, None]: ...

    @abstractmethod
    def _messages(
        self, received: WireMessage, block: Block | None
    ) -> list[Push | Pull | Leave | Done]:
        """Return the messages for the scheduler's program in a wire message."""

    # -- the context -----------------------------------------------------------------

    @property
    def now(self) -> Time:
        return self._clock.now

    @abstractmethod
    def send(self, to: str, *messages: Message) -> None: ...


class ShardScheduler(Scheduler):
    """Lets workers through: a shard without parameters."""

    def __init__(self, place: SchedulerResources) -> None:
        self._turns = Turns(most_unanswered(place.experiment))
        super().__init__(place, self._turns)
        shard = scheduler_shard(place.experiment, self.recorder)
        assert shard is not None
        self.shard = shard

    def close(self) -> None:
        self.shard.close(self._clock.now)

    def _program(self) -> Coroutine[Any, Any, None]:
        return parameter_server(self)

    def _messages(
        self, received: WireMessage, block: Block | None
    ) -> list[Push | Pull | Leave | Done]:
        return [*for_shard(received, block)]

    def send(self, to: str, *messages: Message) -> None:
        for reply in messages:
            assert isinstance(reply, Reply)
            assert reply.parameters is not None
            self._turns.answered(reply.worker, reply.iteration)
            self.recorder.totals.messages += 1
            self._listener.send(to, wire_reply(reply, reply.parameters), reply.parameters)


class CutOffScheduler(Scheduler):
    """Ends iterations when `rule` says so."""

    def __init__(self, place: SchedulerResources, rule: Rule) -> None:
        super().__init__(place)
        self._experiment, self._rule = place.experiment, rule

    def _program(self) -> Coroutine[Any, Any, None]:
        return cut_off(self, self._rule, self._experiment.workers, self._experiment.servers)

    def _messages(
        self, received: WireMessage, block: Block | None
    ) -> list[Push | Pull | Leave | Done]:
        return [received] if isinstance(received, Done | Leave) else []

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            self.recorder.totals.messages += 1
            assert isinstance(message, Close | Abort)
            self._listener.send(to, message)

    def iteration_closed(
        self, iteration: int, opened: Time, ended: Time, wait: Wait, count: int
    ) -> None:
        self.recorder.iteration_closed(iteration, opened, ended, wait, count)
